"""Fields of a request body, which may have any type."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from cursor_gateway.core.conversation import ImageFile, ImageLink, image_kind
from cursor_gateway.errors import InvalidImage, InvalidRequest

MAX_IMAGE_BYTES = 20 * 1024 * 1024
MAX_STRINGS = 16
MAX_STRING_LENGTH = 1000


def expect_object(value: object, param: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"`{param}` must be an object.", param=param)
    return value


def expect_list(value: object, param: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRequest(f"`{param}` must be an array.", param=param)
    return value


def expect_string(value: object, param: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(f"`{param}` must be a string.", param=param)
    return value


def optional_bool(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if not isinstance(value, bool | None):
        raise InvalidRequest(f"`{name}` must be true or false.", param=name)
    return bool(value)


def optional_count(body: Mapping[str, Any], name: str) -> int | None:
    """A whole number of at least 1; some clients write it as 100.0."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest(f"`{name}` must be a whole number of at least 1.", param=name)
    return value


def string_list(value: object, param: str) -> tuple[str, ...]:
    """One text or a list of texts, such as stop sequences; empty texts are dropped."""
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else expect_list(value, param)
    strings = [expect_string(entry, f"{param}[{at}]") for at, entry in enumerate(listed)]
    if len(strings) > MAX_STRINGS or any(len(entry) > MAX_STRING_LENGTH for entry in strings):
        limits = f"{MAX_STRINGS} texts of {MAX_STRING_LENGTH} characters"
        raise InvalidRequest(f"`{param}` may hold {limits}.", param=param)
    return tuple(filter(None, strings))


def image(url: object, param: str) -> ImageFile | ImageLink:
    """An image by its URL: `data:` is decoded and checked, a web address stays a link."""
    address = expect_string(url, param)
    if address.startswith(("http://", "https://")):
        return ImageLink(address)
    header, comma, payload = address.partition(",")
    if not comma or not header.startswith("data:") or not header.endswith(";base64"):
        raise InvalidImage(
            f"The image at `{param}` must be a `data:image/...;base64,` URL or a web address.",
            param=param,
        )
    return image_file(payload, param)


def image_file(payload: str, param: str) -> ImageFile:
    if len(payload) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        limit = MAX_IMAGE_BYTES // 1024 // 1024
        raise InvalidImage(f"The image at `{param}` is larger than {limit} MB.", param=param)
    try:
        data = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidImage(f"The image at `{param}` is not valid base64.", param=param) from None
    extension = image_kind(data)
    if not extension:
        raise InvalidImage(
            f"The data at `{param}` is not a PNG, JPEG, GIF or WebP image.", param=param
        )
    return ImageFile(data, extension)
