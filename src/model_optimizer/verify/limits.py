"""The layer's own numbers: what a near-tie is, how far numbers may drift, how much text is drawn.

What a candidate must reach is not here: that is the gate of its scheme.
"""

from collections.abc import Mapping

from model_optimizer.core import Task

NEAR_TIE = 0.05
"""Nats between the two best tokens of the reference below which their order says nothing. (Of a trained
model 4 % of positions lie below it, of a random one a third: measured on 1.3 million parameters.)"""

NEAR = 0.25
"""Standard deviations below which a difference of cosines or of scores says nothing: of the cosines of all
pairs of texts, or of all scores. (A fifth is what statistics calls a small effect; the number is assumed. For
MiniLM it is 0.02 of cosine.)"""

ULPS: Mapping[str, float] = {"float32": 1024, "float16": 32, "bfloat16": 32}
"""Units in the last place, of the largest value of the row, that a model which is not quantized may be off
in 99 % of rows. An absolute limit would mean another thing at every size of logit: 0.001 is one unit of
float16 at 1 to 2, and an eighth of one at 8 to 16. Seen on models of two layers: 4 to 14 units of float32, 1
of float16; the room above that is assumed, for deeper ones."""

DTYPES: Mapping[str, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Schemes in which a checkpoint is computed as it is, and the float type that each one means."""

FIRST: Mapping[Task, int] = {"generate": 100, "embed": 250, "rerank": 40}
"""Texts, sentences or queries that a verdict starts from."""

MAX_TEXTS = 600
"""Where an undecided verdict stops to draw more, unless told otherwise."""

LOOKS = 4
"""How often the intervals may be looked at; each further look adds to the chance of a wrong verdict."""

MAX_TOKENS = 256
"""Where a text is cut."""

FREE_PROMPT = 32
FREE_TOKENS = 32
"""Tokens of a beginning that both models continue by themselves, and of the continuation."""

QUOTED_PROMPTS = 100
"""Over how many prompts people quote the match of the five likeliest tokens: 99.9 % over 100."""

TOP = 10
"""Tokens that are kept of every position."""
