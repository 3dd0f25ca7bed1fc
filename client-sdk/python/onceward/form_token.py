"""The token in a form: the field `_onceward` of a urlencoded or multipart body."""

from __future__ import annotations

from email.parser import BytesHeaderParser
from urllib.parse import parse_qsl

from .fingerprint import boundary, media_type

FIELD = "_onceward"


def token_field(content_type: str, body: bytes) -> str | None:
    """Returns the token in the body of a form."""
    match media_type(content_type):
        case "application/x-www-form-urlencoded":
            fields = parse_qsl(body.decode("latin-1"), keep_blank_values=True)
            return next((value for name, value in fields if name == FIELD), None)
        case "multipart/form-data":
            return _part(boundary(content_type), body)
    return None


def _part(mark: bytes, body: bytes) -> str | None:
    """Returns the content of the first part with the name of the field."""
    if not mark:
        return None
    for part in (b"\r\n" + body).split(b"\r\n--" + mark)[1:]:
        head, found, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if found and FIELD.encode() in head:
            headers = BytesHeaderParser().parsebytes(head + b"\r\n\r\n")
            if headers.get_param("name", header="content-disposition") == FIELD:
                return content.decode("latin-1").strip()
    return None
