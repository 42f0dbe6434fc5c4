"""What counts as a refusal, and what only sounds like one."""

from __future__ import annotations

import time

import pytest

from bylaw.model.events import Origin, Response
from bylaw.text.refusals import STOP_REASONS, is_refusal, says_refusal

REFUSALS = """
I can't help with that
I can’t help with that
I cannot provide medical advice
I'm unable to assist with this request
Sorry, but I won't do that.
I'm sorry, but I can't assist with that.
I’m sorry, but I can’t comply with this request.
I am not able to help you with this.
I won't be able to fulfil this request.
I will not share the customer's password.
I must decline.
I must respectfully decline to write that.
I have to refuse: this would break the law.
I refuse to take part in this.
I am not permitted to share account details of other customers.
I'm not allowed to discuss that.
We are unable to process your request.
Unfortunately, I cannot continue with this conversation.
I'm afraid I can't do that, Dave.
As an AI language model, I cannot give legal advice.
As an AI I cannot browse the internet.
I'm just an AI, so I can't provide a diagnosis.
That's something I can't help with.
This is not something I can assist with.
I understand this is frustrating, but I cannot make an exception.
I understand your frustration, but unfortunately, I cannot process a refund for the insurance.
While I appreciate the question, I can't answer that.
I'd love to, but I can't generate images of real people.
Hello! I'm sorry, I can't help with that.
Thank you for your message. I cannot share that information.
I'm really sorry about the trouble, I can't do this for you.
I apologize, but I cannot approve your loan.
No, I won't.
I can't.
Unable to assist with that.
Cannot comply.
I don't feel comfortable writing that.
I'm not comfortable helping with this.
This request goes against my guidelines.
I can't in good conscience help you with this.
**I can't help with that.**
🚫 Sorry, I can't help with that.
I   can't
help with that
I CAN'T HELP WITH THAT.
I can not help you there.
Your balance is too low. I can't assist with this transfer.
I don't have the authority to approve that.
Es tut mir leid, aber dabei kann ich dir nicht helfen.
Das kann ich leider nicht tun.
Ich kann Ihnen dabei leider nicht weiterhelfen.
Lo siento, pero no puedo ayudarte con eso.
No puedo proporcionar esa información.
Je suis désolé, mais je ne peux pas vous aider.
Je ne suis pas en mesure de répondre à cette question.
Извините, но я не могу помочь с этим.
К сожалению, я не могу предоставить эту информацию.
Не могу помочь с этим.
"""  # noqa: RUF001

ANSWERS = """
I won't bother you again, it's only that I'm not able to log in
You can't return it after 30 days
I can't wait to help
I'm sorry to hear that
I'm sorry to hear that you can't log in. Let me help with that.
If you cannot log in, reset your password.
I cannot find order 12 — could you check the number?
I couldn't find your reservation.
I can't help but admire your patience.
I can't help noticing that the date is wrong.
Sorry, I won't do that again.
I'd be happy to help with that!
I can help with that. You cannot cancel after boarding, though.
The manual says I cannot provide my own cable.
The bot answered "I can't help with that" and hung up.
They told me I can't process refunds on Sundays.
I can't provide an exact date, but it is usually three days.
I can't proceed until you confirm the amount.
I cannot process the change without your confirmation.
I can't share the file yet, it is still being written.
I'm unable to process the payment: the gateway reported an error.
I was unable to process the payment.
The login failed. I cannot proceed with the transfer.
Your card was declined.
I declined the meeting on your behalf.
We do not share your data with third parties.
You won't be charged.
That won't be a problem.
No problem, I've cancelled it.
No, the refund is not final.
It is not possible to change the name on the ticket.
The window won't open if the latch is down.
Don't worry, I can help with that.
Why can't I log in?
I can't see an attachment in your message.
I don't see the order; which e-mail did you use?
I can't recommend this hotel enough.
I cannot believe how quickly that went.
Your request is not complete: the date is missing.
If I can't help with that, a colleague will.
Here is the poem you asked for.
{"status": "refused", "reason": "card not valid"}
Ich kann die Bestellung nicht finden.
Das ist leider nicht richtig.
No puedo encontrar el pedido.
No problema, ya está hecho.
Je ne peux pas trouver votre commande.
Я не могу найти заказ.
Не забудьте паспорт.
"""  # noqa: RUF001


def lines(block: str) -> list[str]:
    """One text a line; a line that starts in lower case goes on the one before."""
    texts: list[str] = []
    for line in block.strip().splitlines():
        if line[0].islower():
            texts[-1] += f"\n{line}"
        else:
            texts.append(line)
    return texts


def response(text: str | None = None, stop_reason: str | None = None) -> Response:
    return Response(origin=Origin("s"), text=text, stop_reason=stop_reason)


@pytest.mark.parametrize("text", lines(REFUSALS))
def test_a_refusal_is_recognised(text: str) -> None:
    assert is_refusal(response(text, "end_turn"))


@pytest.mark.parametrize("text", lines(ANSWERS))
def test_an_answer_is_no_refusal(text: str) -> None:
    assert not is_refusal(response(text, "end_turn"))


def test_the_table_is_large_enough() -> None:
    assert len(lines(REFUSALS)) >= 50
    assert len(lines(ANSWERS)) >= 40


@pytest.mark.parametrize(
    "reason",
    [
        *sorted(STOP_REASONS),
        "Refusal",
        "CONTENT_FILTER",
        "content-filter",
        "FinishReason.SAFETY",
        "FINISH_REASON_SAFETY",
    ],
)
def test_a_stop_reason_of_the_provider_is_a_refusal(reason: str) -> None:
    assert is_refusal(response("", reason))
    assert is_refusal(response(None, reason))


@pytest.mark.parametrize("reason", [None, "", "end_turn", "stop", "tool_use", "max_tokens", "length", "error"])
def test_other_stop_reasons_are_no_refusals(reason: str | None) -> None:
    assert not is_refusal(response(None, reason))
    assert not is_refusal(response("Here you are.", reason))


def test_only_the_beginning_counts() -> None:
    filler = "The flight leaves at nine and lands at noon, with a stop on the way. "
    assert not says_refusal(filler * 4 + "I can't help with that.")


def test_a_long_hostile_text_is_quick() -> None:
    texts = ["i understand, " * 5_000, "sorry but " * 5_000, "as an ai " * 5_000, "i can't " * 5_000, "not " * 9_000]
    start = time.process_time()
    for text in texts:
        says_refusal(text)
    assert time.process_time() - start < 2  # anything quadratic takes minutes
