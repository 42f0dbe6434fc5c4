"""What an answer decides: a flip is seen whatever its form, layout and wording are not."""

from __future__ import annotations

import pytest

from bylaw.text.decision_words import is_negated
from bylaw.text.decisions import decisions, disagree, is_prose

pytestmark = pytest.mark.sampled(2)

FLIPS = [
    ('{"approved": true}', '{"approved": false}'),
    ('```json\n{"status": "open"}\n```', '```json\n{"status": "closed"}\n```'),
    ('{"hold": null}', '{"hold": true}'),
    ('["ann", "bea"]', '["bea", "ann"]'),
    ("Check: PASS", "Check: FAIL"),
    ("The statement is true.", "The statement is false."),
    ("The water is safe.", "The water is unsafe."),
    ("Parking here is legal.", "Parking here is illegal."),
    ("You should buy.", "You should sell."),
    ("The rate will increase.", "The rate will decrease."),
    ("The fare comes with a bag.", "The fare comes without a bag."),
    ("It meets the norm.", "It fails to meet the norm."),
    ("Y", "N"),
    ("All items are refundable.", "Some items are refundable."),
    ("All of your orders were cancelled.", "Some of your orders were cancelled."),
    ("✅ Shipped", "❌ Shipped"),
    ("See you on Monday.", "See you on Friday."),
    ("Take 40 mg.", "Take 40 g."),
    ("It costs $40.", "It costs $40 million."),
    ("Balance: $40.00", "Balance: ($40.00)"),
    ("Write to ann@example.com.", "Write to bea@example.com."),
    ("Log in at https://bank.example/a.", "Log in at https://bonk.example/a."),
    ("Call at 9:00 AM.", "Call at 9:00 PM."),
    ("Das ist möglich.", "Das ist nicht möglich."),
    ("C'est possible.", "Ce n'est pas possible."),
    ("可以退款。", "不可以退款。"),
    ("返金できます。", "返金できません。"),
    ("We asked Ann to call.", "We asked Bea to call."),
    ("Yes, it is in stock.", "No, it is in stock elsewhere."),
    ("Ja, das geht.", "Nein, das geht."),
    ("Alice will call you.", "Bob will call you."),
    ("Ihr Flug geht nach Paris.", "Ihr Flug geht nach London."),
    ("Sie kommt am Montag.", "Sie kommt am Dienstag."),
    ("Sie kommt am 3. Mai.", "Sie kommt am 3. Juni."),
    ("Elle arrive le 3 juillet.", "Elle arrive le 3 août."),
    ("将于5月3日到达。", "将于5月4日到达。"),
    ("Это возможно.", "Это невозможно."),
    ("To jest możliwe.", "To nie jest możliwe."),
    ("Det är möjligt.", "Det är inte möjligt."),
    ("Je to možné.", "Není to možné."),
    ("Bu mümkün.", "Bu mümkün değil."),
    ("هذا ممكن.", "هذا غير ممكن."),
    ("यह संभव है।", "यह संभव नहीं है।"),
    ("La richiesta è stata approvata.", "La richiesta è stata respinta."),
    ("Valid until May 3, 2026.", "Valid until May 3, 2027."),
    ("Your booking is confirmed.", "Your booking is cancelled."),
    ("You were refunded $20.", "You were charged $20."),
    ("The service was started.", "The service was stopped."),
    ("Call us before the deadline.", "Call us after the deadline."),
    ("It is valid until May 3.", "It is valid after May 3."),
    ("The exit is on the left.", "The exit is on the right."),
    ("Turn left at the church.", "Turn right at the church."),
    ("We operate on the left knee.", "We operate on the right knee."),
    ("It is not new. The claim was approved.", "It is not new. The claim was declined."),
    ("We have raised your limit.", "We have reduced your limit."),
    ("You need at least 3 days.", "You need at most 3 days."),
    ("The order is over $50.", "The order is under $50."),
    ("The order is above the limit.", "The order is below the limit."),
    ("I turned the alarm on.", "I turned the alarm off."),
    ("You are now opted in.", "You are now opted out."),
    ("The price went up.", "The price went down."),
    ("Come in the morning.", "Come in the evening."),
    ("The wind is from the north.", "The wind is from the south."),
    ("We open at 9 a.m. or so.", "We open at 9 p.m. or so."),
    ("The vote is public.", "The vote is private."),
    ("Die Tür ist links.", "Die Tür ist rechts."),
    ("La porte est à gauche.", "La porte est à droite."),
    ("Pague antes del viaje.", "Pague después del viaje."),
    ('{"text": "Your request was approved today."}', '{"text": "Your request was denied today."}'),
    ('{"text": "You can take the dog along."}', '{"text": "You cannot take the dog along."}'),
    ("Wait 20 minutes.", "Wait 20 hours."),
    ("It arrives in 3 days.", "It arrives in 3 weeks."),
    ("It arrives in a week or 1 day.", "It arrives in a week or 1 month."),
    ("Das dauert 3 Tage.", "Das dauert 3 Wochen."),
    ("The balance is 20 EUR.", "The balance is minus 20 EUR."),
    ("The balance is $20.", "The balance is minus $20."),
    ("It costs US$20.", "It costs A$20."),
    ("It costs C$20.", "It costs HK$20."),
    ("It costs ₩200.", "It costs ₽200."),
    ("المبلغ ١٢٣", "المبلغ ٤٥٦"),
    ("मूल्य १२ रुपये", "मूल्य १५ रुपये"),
    ("It has 10² cells.", "It has 10³ cells."),
    ("Take ½ tablet.", "Take ¼ tablet."),
    ("It is 123456789012345678901234567890123.", "It is 123456789012345678901234567890124."),
    ("It costs 1.000,50 €.", "It costs 2.000,50 €."),
    ("It costs 3,50 €.", "It costs 4,50 €."),
]


@pytest.mark.parametrize(("before", "after"), FLIPS, ids=[before for before, _ in FLIPS])
def test_a_flip_is_a_disagreement(before: str, after: str) -> None:
    assert disagree(decisions(before), decisions(after))
    assert not disagree(decisions(before), decisions(before))


UNLIKE = [
    ("Valid until May 3.", "Valid until May 3, 2026."),
    ("Your booking is confirmed.", "Your booking is confirmed. You can cancel it at any time."),
    ("Your flight leaves at 9:40 AM from gate B12.", "You're flying at 09:40; please go to gate B12."),
    ("The transfer of €250 to Maria Lopez is complete.", "I transferred 250 EUR to Maria Lopez."),
    ("Take 2 tablets of 400 mg after meals.", "After meals, take two tablets (400 mg)."),
    ("Ihr Paket kommt am 5. Mai an.", "Die Zustellung Ihres Pakets erfolgt am 5. Mai."),
    ("Su paquete llega el 5 de mayo.", "La entrega será el 5 de mayo."),
]
"""the same decision in other words"""
REFUNDED = "Your refund has been issued."
HARMLESS = [
    *UNLIKE,
    *((REFUNDED, f"{opener}, your refund is on its way.") for opener in ("Perfect", "Alright", "Absolutely", "Yes")),
    ("Perfect, it is done.", "Congratulations, it is done."),
    (REFUNDED, "Your Refund Has Been Issued."),
    (REFUNDED, "The Support Team has issued it. No problem!"),
    ("Ihre Rückerstattung wurde veranlasst.", "Wir haben Ihnen das Geld zurückgezahlt."),
    ("Ihre Buchung ist bestätigt.", "Natürlich, die Reservierung steht."),
    ("Le remboursement est fait.", "D'accord, pas de problème, c'est remboursé."),
    ("El reembolso está hecho.", "No hay problema, listo, ya tiene su dinero."),
    ("返金が完了しました。", "お金をお返ししました。"),
    ("Возврат оформлен.", "Нет проблем, мы вернули вам деньги."),
    ('{"items": [1, 2]}', '{"items":[1,2]}'),
    ('{"total": 1}', '{"total": 1.0}'),
    ("The refund is done.", "The refund is done.\n\n**Next Steps:** Check your statement."),
    ("The refund is done.", "## Refund Summary\nThe refund is done."),
    ("The refund is done.", "The refund is done.\n\nBest regards,\nCustomer Support Team"),
    ("A bag costs $40.", "| Item | Price |\n|---|---|\n| Bag | $40 |"),
    ("First open the lid, then pour.", "1. Open the lid. 2. Pour."),
    ("It is booked.", "It is booked. No further action is needed."),
    ("It is booked.", "It is booked. There is nothing else you need to do."),
    ("It is not covered.", "Unfortunately, this falls outside the coverage."),
    ("I cannot refund this.", "Refunding this is against our policy."),
    ("It takes 3-5 days.", "It takes 3–5 days."),
    ("It takes 3-5 days.", "It takes three to five days."),
    ("You get one bag.", "You get 1 bag."),
    ("The balance is -40.", "The balance is −40."),
    ("Come at 3:00 PM.", "Come at 15:00."),
    ("It costs $40k.", "It costs $40,000."),
    ("It costs 1000.50 EUR.", "It costs 1.000,50 €."),
    ("It costs €1,000.50.", "Das macht 1 000,50 €."),
    ("It costs 1000.50 CHF.", "It costs CHF 1'000.50."),
    ("It costs 1,234,567 EUR.", "Das macht 1.234.567 €."),
    ("It costs 3.50 EUR.", "Das macht 3,50 €."),
    ("It costs $20.", "It costs US$20."),
    ("The balance is -20 EUR.", "The balance is minus 20 EUR."),
    ("It is 123.", "It is ١٢٣."),
    ("It takes 3 days.", "It takes 3 business days."),
    ("Take 1/2 tablet.", "Take ½ tablet."),
    ("Call +1 800 555 0100.", "Call +1-800-555-0100."),
    ("Ann, it is done.", "It is done, Ann."),
    ("You are all set, and all is well.", "Here are some details: you are set."),
    ("After all, it is done.", "It took some time, but it is done."),
    ("All fees are listed here. Some fees are new.", "Some fees are new."),
    ("All requested tasks are done.", "Some slots are free, and the tasks are done."),
    ("We are here.", "We are here 24/7."),
    ("It is in stock.", "Yes, it is in stock."),
    ("Your new seat is 12A.", "Don't forget: your new seat is 12A."),
    ("You have 3 days left.", "Right now, there are 3 days to go."),
    ("After checking your account, I see 2 orders.", "Before we go on: your account has 2 orders."),
    ("Your request was not approved.", "Your request was denied."),
    ("It has not yet been approved.", "It was declined."),
    ("The details are below.", "The details are listed above."),
    ("Good morning! Your seat is 12A.", "Good evening! Your seat is 12A."),
    ("No more than 5 bags are allowed.", "You may take up to 5 bags."),
    ("You need at least 3 days.", "No less than 3 days are needed."),
    ("The price went up to $40.", "The price is down at $40 from today."),
    ("I am more than happy to help: it is booked.", "It took less than a minute: it is booked."),
    ("It ends before June 3.", "It ends prior to June 3."),
    ("You are all set, right?", "There is one step left: you are all set."),
    ('{"text": "Your refund has been issued to you."}', '{"text": "We have sent the money back to you."}'),
]


@pytest.mark.parametrize(("before", "after"), HARMLESS, ids=[after for _, after in HARMLESS])
def test_layout_and_wording_decide_nothing(before: str, after: str) -> None:
    assert not disagree(decisions(before), decisions(after))


def test_an_answer_of_several_messages_decides_what_each_decides() -> None:
    both = decisions("No, a refund of $95 is not possible.", "You're welcome!")
    assert both.facts == {("amount", "95 USD")}
    assert both.is_negated
    assert both.says == "no"
    assert decisions('{"a": 1}', "You're welcome!").shape == ("object", frozenset("a"))


@pytest.mark.parametrize("text", ["no problem", "No further questions.", "nothing more", "不客气", "a non-stop flight"])
def test_a_courtesy_denies_nothing(text: str) -> None:
    assert not is_negated(text)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("Your refund of $20 was approved. Kind regards", True),
        ("退款已经完成。 请 查收 谢谢 您 的 耐心 等待 和 理解 支持 祝 好。", True),
        ("cheapest flights from Oslo to Rome", False),
        ("rm -rf /tmp/build && echo done. bye", False),
        ("SELECT name FROM users WHERE id > 3. ORDER BY name", False),
        ("for x in range(3): print(x) # show it. done", False),
        ("git commit -m 'Fix the bug. It works now.'", False),
        ("/srv/data/report of may.pdf is here", False),
    ],
)
def test_prose_is_distinguished_from_commands_and_queries(text: str, is_one: bool) -> None:
    assert is_prose(text) is is_one


@pytest.mark.parametrize(
    "unit", ["1, ", "$", "a@", "1-", "**", "if ", "(1", "no ", "A, ", "\n- ", "111,", "111'", "111 "]
)
def test_hostile_texts_take_linear_time(unit: str) -> None:
    import time

    def taken(count: int) -> float:
        began = time.process_time()
        decisions(unit * count)
        return time.process_time() - began

    short = min(taken(1_000) for _ in range(3))
    assert min(taken(8_000) for _ in range(2)) < 30 * max(short, 0.002)
