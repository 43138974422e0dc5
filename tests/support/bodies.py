"""Bodies of requests, right and wrong, for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
)


FIELDS = st.sampled_from(
    "model messages stream stream_options max_tokens stop response_format n logprobs role content "
    "type text image_url url tool_calls function name arguments tool_call_id json_schema schema "
    "function_call tools tool_choice functions parameters input_schema input id source data "
    "tool_use_id parallel_tool_calls properties required".split()
)


BODIES = st.recursive(
    ANYTHING
    | st.sampled_from(
        "user assistant tool text image_url json_schema tool_use tool_result image function".split()
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=40,
)
