"""`/v1/rerank`: how well each document answers a query. Pairs share batches with those of strangers."""

import asyncio
import math
from typing import Any

import litserve
import numpy as np
from _contract import fail
from _serve_embeddings import MOST_INPUTS, EmbeddingsSpec
from _serve_http import Refused, check_length, check_model, read
from _serve_vectors import Encoded
from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict


class RerankAsked(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    query: str
    documents: list[str]
    top_n: int | None = None
    return_documents: bool = False


class RerankSpec(EmbeddingsSpec):
    """Reads pairs and writes scores between 0 and 1, the best first."""

    def __init__(self, *given: Any, activation: str | None) -> None:
        super().__init__(*given)
        self.api_path = "/v1/rerank"
        if activation != "sigmoid":
            fail("not-a-reranker", "the model gives several scores for a pair: it sorts into classes")

    def pre_setup(self, lit_api: litserve.LitAPI) -> None:
        del lit_api
        self.add_endpoint(self.api_path, self.rerank, ["POST"])

    async def rerank(self, request: Request) -> JSONResponse:
        asked = await read(request, RerankAsked)
        check_model(asked.model, self._name)
        if not asked.documents or len(asked.documents) > MOST_INPUTS:
            raise Refused(400, f"1 to {MOST_INPUTS} documents are wanted", code="inputs", param="documents")
        pairs = [self._pair(asked.query, document) for document in asked.documents]
        answers = await asyncio.gather(*(self._vector(pair) for pair in pairs))
        scores = [1 / (1 + math.exp(-float(np.frombuffer(answer, "<f4")[0]))) for answer in answers]
        order = sorted(range(len(scores)), key=lambda place: -scores[place])[: asked.top_n]
        results: list[dict[str, Any]] = [
            {"index": place, "relevance_score": scores[place]}
            | ({"document": {"text": asked.documents[place]}} if asked.return_documents else {})
            for place in order
        ]
        tokens = sum(len(pair.ids) for pair in pairs)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "model": self._name, "results": results, "usage": usage})

    def _pair(self, query: str, document: str) -> Encoded:
        assert self._texts is not None
        encoded = Encoded(*self._texts.encode_pair(query, document))
        check_length(len(encoded.ids), 0, self._longest)
        return encoded
