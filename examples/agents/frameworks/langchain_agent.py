"""A chain in LangChain: a prompt, a model that echoes what it is asked, and the text of its answer."""

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate


class Echo(BaseChatModel):
    """Says what it was asked."""

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        said = AIMessage(content=f"You asked me this: {messages[-1].content}")
        return ChatResult(generations=[ChatGeneration(message=said)])


prompt = ChatPromptTemplate([("system", "You are the desk of a shop."), ("user", "{question}")])
agent = prompt | Echo() | StrOutputParser()
