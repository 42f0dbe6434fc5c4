"""Words that carry grammar rather than content, in the languages of most traces.

An answer made of these alone says nothing about its topic. A word of another language that is a usual content word in
English ("war", "hat", "come") is left out. Contractions come as the parts that an apostrophe leaves.
"""

# ruff: noqa: RUF001  # words of other scripts are meant to be in these
from __future__ import annotations

_BY_LANGUAGE = {
    "English": """
        about above after again all also am an and any are aren as at be because been before being below between
        both but by can cannot could couldn did didn do does doesn doing don down during each either else etc
        ever every few for from further get got had hadn has hasn have haven having he her here hers herself him
        himself his how however if in into is isn it its itself just ll may me might more most must mustn my
        myself needn neither no nor not of off on once only onto or other our ours ourselves out over own per
        please re same shall she should shouldn so some such than that the their theirs them themselves then
        there these they this those though through thus to too under until up upon us ve very was wasn we were
        weren what when where whether which while who whom whose why will with within without won would wouldn
        yes yet you your yours yourself yourselves
        actually although indeed maybe often perhaps quite rather really simply since sometimes therefore usually well
        """,
    "German": """
        aber als am an auch auf aus bei bis bist da damit dann das dass dein deine dem den der des die diese
        diesem diesen dieser dieses doch dort du durch ein eine einem einen einer eines er es euch euer für
        hatte ich ihm ihn ihr ihre ihrem ihren ihrer im in ist ja jede jeder kann kein keine können mein meine
        mich mir mit nach nicht noch nur ob oder ohne sehr sein seine sich sie sind so um und uns unser unsere
        unter vom von vor was weil wenn wer werden wir wird wo wurde zu zum zur über
        """,
    "French": """
        au aux avec ce ces cet cette comme dans de des du elle elles en est et il ils je la le les leur leurs
        lui mais mes mon même ne nos notre nous on ou où pas que quel quelle qui sa sans se ses si sont sur ta
        te tes tu un une vos votre vous été être
        """,
    "Spanish": """
        al como con cual cuando de del desde donde el ella ellas ellos en entre es esa ese eso esta estas este
        esto estos está están fue ha han hasta la las le les lo los me mi mis muy más nada ni no nos nosotros
        nuestra nuestro para pero por porque que qué se ser si sobre su sus sí también te tu tus un una unas uno
        unos usted ustedes ya yo él
        """,
    "Italian": """
        agli al alla alle allo anche che chi ci con cui da dai dal dalla dei del della delle dello di ed egli
        gli ha hai hanno ho il io la le lei lo loro lui ma mi mia mio ne nei nel nella noi non nostra nostro per
        perché più quale quando quella quello questa questo se sei si sia siamo sono sta su sua sul sulla suo ti
        tra tu tua tuo un una uno vi voi
        """,
    "Portuguese": """
        ao aos as com como da das de dela dele do dos ela elas ele eles em entre essa esse esta este foi há isso
        isto já lhe mais mas me mesmo meu minha muito na nem no nos nossa nosso num numa não nós ou para pela
        pelo por qual quando que quem se sem ser seu sua são só também te tem uma você vocês às
        """,
    "Dutch": """
        aan als bij dan dat de deze die dit een en er geen had heb heeft hem het hij hun ik in is je kan maar me
        mij mijn naar niet nog nu of om ons ook op over te tot uit van voor waar wat we wel wij worden wordt ze
        zich zij zijn zo zou
        """,
    "Russian": """
        без бы был была были было быть вам вас ваш ваша ваше ваши во вот все всех вы где да для до его ее если
        есть еще ещё её же за здесь из или им их как когда которые который кто ли мне мой мы на над нам нас не
        него нет ни но ну об он она они оно от по под при про со так также там то того тоже только том тот ты
        уже что чтобы эта эти это этого этой этом этот
        """,
    "Swedish": """
        att av blir de den denna det detta du efter eller en ett från får för han har hon här inte jag kan man med
        men mig mycket när och också om oss på sig ska som till upp vad var vi vid är över
        """,
    "Polish": """
        ale bez był była było być co czy dla do go gdy ich jak jako jej jest jeszcze już która które który lub ma
        może na nie niż od po przez przy się są tak tego ten też to tylko tym we za ze że
        """,
    "Turkish": """
        ama bana ben bir biz bu bunu da daha de değil en gibi hem her için ile ise kadar ki mi mı nasıl ne o olan
        olarak onu sen siz sonra şu ve veya ya çok
        """,
    "Greek": """
        αλλά αν από αυτά αυτή αυτό για δεν εγώ είναι εμείς ένα ένας ή η θα και κατά μας με μη μια μπορεί να ο οι
        όπως όταν ότι που πως σας σε στα στη στην στις στο στον τα της τη την τι τις το τον του τους των
        """,
    "Hebrew": """
        אבל או אותו אותה אחרי אין אל אם אני אנחנו אתה את ב גם הוא היא היה הם הן זאת זה זו יש כי כל כמו כן לא לי לך
        לו מה מי מן עוד על עם רק של שלא שלך שלנו
        """,
    "Arabic": """
        أن أو أي إذا إلى إن التي الذي الذين أنا أنت بعد بل بين ثم حتى ذلك عن على عند غير في قبل قد كان كانت كل كما
        لا لكن لم لن له لها ما مع من منذ نحن هذا هذه هل هم هو هي و يا
        """,
    "Hindi": """
        अगर अपने अब आप इन इस इसके उन उस उसके एक और कर करने का कि किया की कुछ के को कोई क्या गया जब जो तक तो था थी थे
        नहीं ने पर भी मैं में यह यहाँ या ये लिए वह वे से हम ही हुआ है हैं हो
        """,
}
STOP_WORDS = frozenset(word for words in _BY_LANGUAGE.values() for word in words.split())
