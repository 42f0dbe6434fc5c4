"""`bylaw pull`: whole traces, page by page, and clear words where a service refuses."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import bylaw
from bylaw.cli import cli
from bylaw.pull import services
from bylaw.pull.client import Client, PullError, proxy_of
from tests.pull.server import (
    CARD,
    IDS,
    Fake,
    delete_after_listing,
    serving,
    speak_langfuse,
    speak_langfuse_v2,
    speak_langsmith,
    speak_langsmith_v2,
    speak_mlflow,
    speak_phoenix,
)

KEY = "sk-lf-0123456789abcdef"
SPEAKERS: dict[str, tuple[str, Callable[[Fake], None]]] = {
    "langfuse": ("langfuse", speak_langfuse),
    "langfuse v2": ("langfuse", speak_langfuse_v2),
    "langsmith": ("langsmith", speak_langsmith),
    "langsmith v2": ("langsmith", speak_langsmith_v2),
    "mlflow": ("mlflow", speak_mlflow),
    "phoenix": ("phoenix", speak_phoenix),
    "phoenix before 13.9": ("phoenix", lambda fake: speak_phoenix(fake, filters=False)),
}
VARIABLES = {"langsmith v2": {"LANGSMITH_ENDPOINT": "FAKE/api/v1"}}
SIZES = ("_LANGFUSE_PAGE", "_V2_PAGE", "_PAGE")


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving() as server:
        yield server


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited; no time passes."""
    waited: list[float] = []
    init = Client.__init__

    def patched(self: Client, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        self.sleep = waited.append

    monkeypatch.setattr(Client, "__init__", patched)
    return waited


Pull = Callable[..., Result]


@pytest.fixture
def pull(fake: Fake, waits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pull:
    monkeypatch.chdir(tmp_path)
    environment = {
        "LANGFUSE_BASE_URL": fake.url, "LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": KEY,
        "LANGSMITH_ENDPOINT": f"{fake.url}/", "LANGSMITH_API_KEY": KEY, "LANGSMITH_PROJECT": "shop",
        "MLFLOW_TRACKING_URI": fake.url, "MLFLOW_TRACKING_TOKEN": KEY, "MLFLOW_EXPERIMENT_NAME": "shop",
        "PHOENIX_ENDPOINT": fake.url, "PHOENIX_API_KEY": KEY, "PHOENIX_PROJECT": "shop",
    }  # fmt: skip

    def run(*arguments: str, **variables: str | None) -> Result:
        env = {**environment, **{key: value and value.replace("FAKE", fake.url) for key, value in variables.items()}}
        done = CliRunner().invoke(cli, ["pull", *arguments], env=env, standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        assert KEY not in done.output and base64.b64encode(f"pk:{KEY}".encode()).decode() not in done.output
        return done

    return run


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("speaker", SPEAKERS)
def test_whole_traces_are_pulled(
    fake: Fake, pull: Pull, speaker: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, speak = SPEAKERS[speaker]
    speak(fake)
    for name in SIZES:
        monkeypatch.setattr(services, name, size)
    done = pull(service, "--limit", "2", **VARIABLES.get(speaker, {}))
    path = tmp_path / f"{service}.jsonl"
    assert done.return_value == 0
    assert "pulled 2 traces" in done.stderr and "there are older ones" in done.stderr
    trace = bylaw.load_trace(path)
    assert trace.complete and not trace.problems and trace.notes == ()
    assert trace.format == ("openinference" if service == "phoenix" else service)
    results = [event for event in trace.events if event.kind == "tool_result"]
    assert [(one.call.name, one.call.arguments, one.content) for one in results if one.call] == [
        ("refund", {"order": 7}, "paid")
    ] * 2
    assert len(trace.sessions) == 2 and IDS[2] not in path.read_text()
    assert CARD not in path.read_text() and "[redacted: card]" in path.read_text()
    assert "@example.com" not in path.read_text(), "and sessions named by an address stay apart"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_credentials_and_times_are_sent_as_the_service_wants_them(fake: Fake, pull: Pull, speaker: str) -> None:
    service, speak = SPEAKERS[speaker]
    speak(fake)
    assert pull(service, "--since", "2026-11-01", "--no-redact", **VARIABLES.get(speaker, {})).return_value == 0
    sent = {
        "langfuse": ("authorization", "Basic " + base64.b64encode(f"pk:{KEY}".encode()).decode()),
        "langsmith": ("x-api-key", KEY),
    }
    header, value = sent.get(service, ("authorization", f"Bearer {KEY}"))
    assert all(headers[header] == value for _, _, headers in fake.asked)
    since = "1793491200000" if service == "mlflow" else "2026-11-01T00:00:00+00:00"
    assert any(since in str(query) for _, query, _ in fake.asked)


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_client_of_langsmith_reads_the_same_server(fake: Fake) -> None:
    langsmith = pytest.importorskip("langsmith")
    speak_langsmith(fake)
    client = langsmith.Client(api_url=fake.url, api_key=KEY, auto_batch_tracing=False)
    runs = list(client.list_runs(project_name="shop", trace_id=IDS[1]))
    assert [run.run_type for run in runs] == ["chain", "llm", "tool"]


@pytest.mark.parametrize(
    ("status", "headers", "code", "said"),
    [
        (401, {}, 2, "refuses the credentials in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY (status 401)"),
        (403, {}, 2, "refuses the credentials"),
        (302, {"location": "http://elsewhere.invalid/"}, 2, "redirects to another address; set LANGFUSE_BASE_URL"),
        (400, {}, 2, "answered with status 400: <html>no</html>"),
        (500, {}, 4, "answered with status 500"),
        (429, {"retry-after": "3600"}, 4, "limits how often it may be asked"),
    ],
)
def test_a_refused_request_ends_with_the_reason(
    fake: Fake,
    pull: Pull,
    waits: list[float],
    status: int,
    headers: dict[str, str],
    code: int,
    said: str,
    tmp_path: Path,
) -> None:
    speak_langfuse(fake)
    fake.refusals = [(status, headers)]
    done = pull("langfuse")
    assert (done.return_value, waits, list(tmp_path.iterdir())) == (code, [], [])
    assert said in done.stderr


def test_a_service_that_is_not_there(pull: Pull) -> None:
    done = pull("langfuse")
    assert (done.return_value, "has nothing at" in done.stderr, "LANGFUSE_BASE_URL" in done.stderr) == (2, True, True)
    done = pull("langfuse", LANGFUSE_BASE_URL="http://user:hunter2@127.0.0.1:1")
    assert (done.return_value, "cannot be reached" in done.stderr, "hunter2" in done.stderr) == (4, True, False)


def test_a_service_that_is_busy_is_asked_again(fake: Fake, pull: Pull, waits: list[float]) -> None:
    speak_langfuse(fake)
    fake.refusals = [(429, {"retry-after": "7"}), (503, {}), (429, {})]
    assert pull("langfuse").return_value == 0
    assert waits == [7.0, 2.0, 4.0]


def test_a_service_that_stays_busy_leaves_no_file(fake: Fake, pull: Pull, waits: list[float], tmp_path: Path) -> None:
    speak_langfuse(fake)
    fake.answers[f"/api/public/traces/{IDS[1]}"] = lambda query: fake.refusals.extend([(429, {})] * 5) or {}
    fake.answers[f"/api/public/traces/{IDS[2]}"] = lambda query: {}
    done = pull("langfuse")
    assert (done.return_value, len(waits), list(tmp_path.iterdir())) == (4, 4, [])


def test_what_the_environment_lacks(pull: Pull) -> None:
    for service, name in (
        ("langfuse", "LANGFUSE_SECRET_KEY"),
        ("langsmith", "LANGSMITH_API_KEY"),
        ("mlflow", "MLFLOW_TRACKING_URI"),
    ):
        done = pull(service, **{name: None})
        assert (done.return_value, f"the variable {name} is not set" in done.stderr) == (2, True)
    done = pull("langfuse", LANGFUSE_SECRET_KEY="hunter2\nx")
    assert (done.return_value, "hunter2" in done.output) == (2, False)
    assert pull("mlflow", MLFLOW_TRACKING_URI="sqlite:///mlflow.db").return_value == 2


def test_projects_that_do_not_exist(fake: Fake, pull: Pull) -> None:
    speak_langsmith(fake)
    for service in ("langsmith", "mlflow", "phoenix"):
        done = pull(service, "--project", "nowhere")
        assert (done.return_value, "`nowhere`" in done.stderr) == (2, True)


def test_nothing_to_pull_is_not_a_success(fake: Fake, pull: Pull, tmp_path: Path) -> None:
    fake.answers["/v1/projects/shop/spans"] = lambda query: {"data": [], "next_cursor": None}
    done = pull("phoenix")
    assert (done.return_value, "NOTHING PULLED" in done.stderr, list(tmp_path.iterdir())) == (3, True, [])


def test_replies_of_another_shape(fake: Fake, pull: Pull) -> None:
    for reply in ([], "x", 7):
        fake.answers["/v1/projects/shop/spans"] = lambda query, reply=reply: reply
        assert pull("phoenix").return_value == 2


LISTS = {
    "langfuse": ("/api/public/traces", "data"),
    "langfuse v2": ("/api/public/v2/observations", "data"),
    "langsmith": ("/runs/query", "runs"),
    "langsmith v2": ("/api/v2/runs/query", "items"),
    "mlflow": ("/api/3.0/mlflow/traces/search", "traces"),
    "phoenix": ("/v1/projects/shop/spans", "data"),
}
"""where each speaker lists traces, and under which key"""


@pytest.mark.parametrize("odd", ["x", {}, [7], [{"context": 7}]], ids=str)
@pytest.mark.parametrize("speaker", LISTS)
def test_a_list_that_is_not_understood_is_not_an_empty_one(fake: Fake, pull: Pull, speaker: str, odd: Any) -> None:
    service, speak = SPEAKERS[speaker]
    speak(fake)
    path, key = LISTS[speaker]
    fake.answers[path] = lambda query: {key: odd}
    done = pull(service, **VARIABLES.get(speaker, {}))
    assert (done.return_value, "is not understood" in done.stderr) == (2, True)


@pytest.mark.parametrize("speaker", LISTS)
def test_a_service_that_repeats_a_page_is_not_asked_for_ever(
    fake: Fake, pull: Pull, speaker: str, tmp_path: Path
) -> None:
    service, speak = SPEAKERS[speaker]
    speak(fake)
    path, _ = LISTS[speaker]
    answer, replies = fake.answers[path], list[Any]()
    more = {"cursors": {"next": "c"}, "next_cursor": "c", "next_page_token": "c"}

    def first(query: dict[str, Any]) -> Any:
        replies.append(replies[0] if replies else answer(query))
        return {**replies[0], **more, "meta": {"totalPages": 10**6, "cursor": "c"}}

    fake.answers[path] = first
    done = pull(service, **VARIABLES.get(speaker, {}))
    assert (done.return_value, "the same page again" in done.stderr, list(tmp_path.iterdir())) == (4, True, [])
    assert len(fake.asked) < 20


@pytest.mark.parametrize("speaker", LISTS)
def test_a_trace_that_is_deleted_meanwhile_does_not_end_the_pull(
    fake: Fake, pull: Pull, speaker: str, tmp_path: Path
) -> None:
    service, speak = SPEAKERS[speaker]
    speak(fake)
    delete_after_listing(fake, IDS[1])
    done = pull(service, **VARIABLES.get(speaker, {}))
    said = " ".join(done.stderr.split())
    assert (done.return_value, "pulled 2 traces" in said) == (0, True)
    assert "1 more trace listed, but not there when asked for" in said
    text = (tmp_path / f"{service}.jsonl").read_text()
    assert [one in text for one in IDS] == [True, False, True]


def test_traces_that_are_all_gone_are_an_error(fake: Fake, pull: Pull, tmp_path: Path) -> None:
    speak_langfuse(fake)
    for one in IDS:
        del fake.answers[f"/api/public/traces/{one}"]
    done = pull("langfuse")
    assert (done.return_value, "has nothing at" in done.stderr, list(tmp_path.iterdir())) == (2, True, [])


def test_a_reply_that_is_cut_off_is_asked_for_again(fake: Fake, pull: Pull, waits: list[float], tmp_path: Path) -> None:
    speak_langfuse(fake)
    fake.cuts = 2
    assert (pull("langfuse", "--out", "a").return_value, waits) == (0, [1.0, 2.0])
    fake.cuts = 99
    done = pull("langfuse", "--out", "b")
    assert (done.return_value, "was cut short" in done.stderr, (tmp_path / "b").exists()) == (4, True, False)


def test_a_file_that_exists_is_kept(fake: Fake, pull: Pull, tmp_path: Path) -> None:
    speak_phoenix(fake)
    (tmp_path / "mine.jsonl").write_text("mine")
    with pytest.raises(click.UsageError, match="--force replaces it"):
        pull("phoenix", "--out", "mine.jsonl")
    assert (tmp_path / "mine.jsonl").read_text() == "mine"
    assert pull("phoenix", "--out", "mine.jsonl", "--force").return_value == 0


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "7y", "999999w"])
def test_a_time_that_is_none(pull: Pull, text: str) -> None:
    with pytest.raises(click.UsageError, match="is no time"):
        pull("phoenix", "--since", text)


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ("foo", "unknown service `foo` (choose from langfuse, langsmith, mlflow, phoenix)"),
        ("langfsue", "unknown service `langfsue`; did you mean `langfuse`? (choose from"),
    ],
)
def test_a_service_that_is_not_known(pull: Pull, service: str, message: str) -> None:
    with pytest.raises(click.UsageError) as problem:
        pull(service)
    assert problem.value.message.startswith(message)


def test_a_proxy_of_the_environment_is_used(fake: Fake, pull: Pull, tmp_path: Path) -> None:
    speak_langfuse(fake)
    proxy = fake.url.replace("http://", "http://me:p%40ss@")
    done = pull("langfuse", "--limit", "1", LANGFUSE_BASE_URL="http://langfuse.example", HTTP_PROXY=proxy, NO_PROXY="")
    assert done.return_value == 0 and (tmp_path / "langfuse.jsonl").is_file()
    assert {headers["host"] for _, _, headers in fake.asked} == {"langfuse.example"}
    given = "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert {headers["proxy-authorization"] for _, _, headers in fake.asked} == {given}


def test_https_is_tunnelled_and_a_refusal_names_the_proxy(fake: Fake, pull: Pull) -> None:
    done = pull("langfuse", LANGFUSE_BASE_URL="https://langfuse.example", HTTPS_PROXY=fake.url, NO_PROXY="")
    reported = f"through the proxy `{fake.url.removeprefix('http://')}`, cannot be reached: tunnel connection failed"
    assert done.return_value == 4 and reported in " ".join(done.stderr.split())
    assert fake.asked == [], "a server that knows no CONNECT refuses it before anything else is sent"


@pytest.mark.parametrize(
    ("address", "variables", "proxy"),
    [
        ("https://h.example", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://h.example:8443/x", {"ALL_PROXY": "p:3128"}, "http://p:3128"),
        ("https://10.1.2.3", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://h.example", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("https://h.example", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "other,.example"}, None),
        ("https://localhost:6006", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("https://h.example", {}, None),
    ],
)
def test_the_environment_chooses_the_proxy(
    address: str, variables: dict[str, str], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proxy_of(address) == proxy


def test_other_kinds_of_proxies_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:secret@p:1080")
    monkeypatch.delenv("https_proxy", raising=False)
    with pytest.raises(PullError, match="only HTTP proxies can be used, not `socks5://p`, which `HTTPS_PROXY` names"):
        proxy_of("https://h.example")


def test_an_address_of_a_proxy_that_is_no_url_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALL_PROXY", "http://me:secret@p:port")
    with pytest.raises(PullError) as refused:
        proxy_of("https://h.example")
    assert str(refused.value) == "the environment variable `ALL_PROXY` is not a valid URL"
