//! Replies in the protocol of Redis, found in the bytes that a connection has read.

use std::ops::Range;

use memchr::memchr;
use redis::{ErrorKind, RedisError, RedisResult, Value, parse_redis_value};

/// The maximum length of a value, and number of parts. The limit of Redis is 512 MB unless it is configured otherwise.
const MAX_LENGTH: usize = 1 << 30;
/// The maximum length of a line: an error, a simple string or a number.
const MAX_LINE: usize = 64 * 1024;

/// Returns the length of the first reply in these bytes; `None` if they end before it does.
///
/// # Errors
/// If the bytes are no reply. What follows cannot be assigned to commands either.
pub(super) fn reply_length(bytes: &[u8]) -> RedisResult<Option<usize>> {
    let (mut at, mut parts) = (0, 1_usize);
    while parts > 0 {
        let Some(line) = line_at(bytes, at)? else { return Ok(None) };
        let (kind, end) = (bytes[at], line.end + 2);
        parts -= 1;
        at = match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => end,
            b'$' | b'=' | b'!' => match count(&bytes[line])? {
                Some(length) => end_of_value(bytes, end + length)?,
                None => end,
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let inner = count(&bytes[line])?.unwrap_or(0);
                // A map has two parts per entry. Attributes are followed by the value that they describe.
                let each = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
                let inner = inner.checked_mul(each).and_then(|inner| inner.checked_add(usize::from(kind == b'|')));
                parts = inner.and_then(|inner| parts.checked_add(inner)).ok_or_else(malformed)?;
                end
            }
            _ => return Err(malformed()),
        };
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// Returns whether a reply answers no command: the server has sent it on its own.
pub(super) fn is_push(reply: &[u8]) -> bool {
    reply.first() == Some(&b'>')
}

/// Parses one reply. The usual ones are parsed here, without a parser's state; redis-rs parses the others.
pub(super) fn parse(reply: &[u8]) -> RedisResult<Value> {
    match reply {
        b"$-1\r\n" | b"_\r\n" => Ok(Value::Nil),
        b":1\r\n" => Ok(Value::Int(1)),
        b":0\r\n" => Ok(Value::Int(0)),
        [b'$', ..] => match line_at(reply, 0)? {
            Some(line) => Ok(Value::BulkString(reply[line.end + 2..reply.len() - 2].to_vec())),
            None => Err(malformed()),
        },
        other => parse_redis_value(other)?.extract_error(),
    }
}

/// Returns where the first line after the kind of a reply is; `None` if the bytes end before it does.
fn line_at(bytes: &[u8], at: usize) -> RedisResult<Option<Range<usize>>> {
    let Some(rest) = bytes.get(at + 1..) else { return Ok(None) };
    match memchr(b'\r', rest) {
        Some(length) if length > MAX_LINE => Err(malformed()),
        None if rest.len() > MAX_LINE => Err(malformed()),
        Some(length) => match rest.get(length + 1) {
            Some(b'\n') => Ok(Some(at + 1..at + 1 + length)),
            Some(_) => Err(malformed()),
            None => Ok(None),
        },
        None => Ok(None),
    }
}

/// Returns the end of a value whose content ends at `at`, behind its line end.
fn end_of_value(bytes: &[u8], at: usize) -> RedisResult<usize> {
    match bytes.get(at..at + 2) {
        Some(b"\r\n") | None => Ok(at + 2),
        Some(_) => Err(malformed()),
    }
}

/// Parses a length; `None` if it is negative, which means that there is no value.
fn count(digits: &[u8]) -> RedisResult<Option<usize>> {
    if digits == b"-1" {
        return Ok(None);
    }
    if digits.is_empty() || digits.len() > 10 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(malformed());
    }
    let count = digits.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
    usize::try_from(count).ok().filter(|count| *count <= MAX_LENGTH).map(Some).ok_or_else(malformed)
}

/// Checks the replies in any bytes, for fuzzers: a part of a reply is never taken for a whole one, and redis-rs reads the same value.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_replies(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(length)) = reply_length(rest) {
        let (reply, next) = rest.split_at(length);
        for end in 0..length.min(300) {
            assert_eq!(reply_length(&reply[..end]).ok(), Some(None), "a part is taken for the whole");
        }
        let theirs = parse_redis_value(reply).and_then(Value::extract_error);
        assert_eq!(format!("{:?}", parse(reply)), format!("{theirs:?}"), "redis-rs reads another value");
        rest = next;
    }
}

fn malformed() -> RedisError {
    (ErrorKind::Parse, "not a reply of Redis").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: [&str; 17] = [
        "+OK\r\n",
        "-ERR unknown command\r\n",
        ":1\r\n",
        ":-12\r\n",
        "$-1\r\n",
        "_\r\n",
        "$0\r\n\r\n",
        "$4\r\na\r\nb\r\n",
        "=8\r\ntxt:text\r\n",
        "!5\r\nERR x\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        "%1\r\n+role\r\n+master\r\n",
        "~1\r\n#t\r\n",
        ">2\r\n+invalidate\r\n*1\r\n$1\r\nx\r\n",
        "|1\r\n+ttl\r\n:1\r\n$1\r\na\r\n",
    ];

    #[test]
    fn reply_ends_where_the_next_begins() {
        for reply in REPLIES {
            let followed = format!("{reply}:7\r\n");
            assert_eq!(reply_length(followed.as_bytes()).unwrap(), Some(reply.len()), "{reply:?}");
            for end in 0..reply.len() {
                assert_eq!(reply_length(&reply.as_bytes()[..end]).unwrap(), None, "{reply:?} up to {end}");
            }
        }
    }

    #[test]
    fn reply_is_parsed_as_redis_rs_parses_it() {
        for reply in REPLIES {
            let (read, theirs) = (parse(reply.as_bytes()), parse_redis_value(reply.as_bytes()).unwrap());
            match theirs.extract_error() {
                Ok(value) => assert_eq!(read.unwrap(), value, "{reply:?}"),
                Err(error) => assert_eq!(read.unwrap_err(), error, "{reply:?}"),
            }
        }
    }

    #[test]
    fn bytes_that_are_no_reply_are_rejected() {
        for bytes in [
            "HTTP/1.1 400 Bad Request\r\n",
            "$x\r\n",
            "$-2\r\n",
            "*\r\n",
            "$99999999999\r\n",
            "$9999999999\r\n",
            "\r\n\r\n",
            "+a\rb\r\n",
            "$3\r\nabcXX",
            "$3\rXabc\r\n",
            "*1\r\n$1\r\nab\r\n",
        ] {
            assert!(reply_length(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
        assert_eq!(reply_length(&[b'+'; MAX_LINE]).unwrap(), None, "the line may end later");
        assert!(reply_length(&[b'+'; MAX_LINE + 2]).is_err(), "it grows without end");
        let many = "*1073741824\r\n".repeat(3);
        assert_eq!(reply_length(many.as_bytes()).unwrap(), None, "more parts may follow");
    }

    #[test]
    fn push_is_told_from_a_reply() {
        assert!(is_push(b">1\r\n+x\r\n") && !is_push(b"+x\r\n"));
    }
}
