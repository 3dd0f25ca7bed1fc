//! Entry points for fuzzers: each accepts any bytes and panics if an invariant does not hold. Not part of the public API.

use crate::binding::Binding;
use crate::fingerprint::{Content, Fields};
use crate::key::Key;
use crate::record::Record;
use crate::subject::Subject;
use crate::token::mint::Mint;
use crate::token::secret::Secret;
use crate::token::{Credential, TokenFields};

/// Checks any bytes as a token: each token has one spelling only, and an unsigned token is rejected.
///
/// # Panics
/// If an invariant does not hold.
pub fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some((fields, tag)) = TokenFields::open(text) {
        assert_eq!(fields.seal(tag).as_str(), text, "the token has a second spelling");
    }
    let Ok(secret) = Secret::new("a secret that the fuzzer does not know") else { return };
    let (mint, anonymous) = (Mint::new([secret]), Subject::anonymous());
    assert!(mint.verify(&Credential::of(text), "a", &anonymous).is_err(), "an unsigned token was accepted");
    // A signed token, altered at one position.
    let good = mint.sign(uuid::Uuid::nil(), u64::MAX, [0; 8], &Binding::none());
    let mut altered = good.as_str().as_bytes().to_vec();
    if let [place, with, ..] = *bytes {
        let place = usize::from(place) % altered.len();
        altered[place] = with;
        let altered = String::from_utf8_lossy(&altered);
        assert_eq!(
            mint.verify(&Credential::of(&altered), "a", &anonymous).is_ok(),
            altered == good.as_str(),
            "at {place}"
        );
    }
}

/// Checks any bytes as the value of an `Idempotency-Key` header: an accepted key is the same when it is quoted.
///
/// # Panics
/// If an invariant does not hold.
pub fn header(bytes: &[u8]) {
    let Ok(key) = Key::from_header(bytes) else { return };
    let text = std::str::from_utf8(key.as_bytes()).expect("a key is text");
    let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    assert_eq!(Key::from_header(quoted.as_bytes()).ok(), Some(key), "the quoted key differs");
}

/// Checks any bytes as a form in a body: the result does not depend on how the body is split into chunks, and the fingerprint does not
/// depend on the token.
///
/// # Panics
/// If an invariant does not hold.
pub fn form(bytes: &[u8]) {
    let [cuts, body @ ..] = bytes else { return };
    crate::http::scan_in_pieces(body, usize::from(*cuts).max(1));
    let of = |content_type, body: &[u8]| {
        let content = Content { method: "POST", path: "/", query: "", content_type: Some(content_type), body };
        content.fingerprint(&Fields::all())
    };
    of("multipart/form-data; boundary=xy", body);
    of("application/json", body);
    let with_token = [body, b"&_onceward=t"].concat();
    let kind = "application/x-www-form-urlencoded";
    assert_eq!(of(kind, body), of(kind, &with_token), "the fingerprint includes the token");
}

/// Checks any bytes as a record of the store: a record that can be decoded has one encoding only.
///
/// # Panics
/// If an invariant does not hold.
pub fn record(bytes: &[u8]) {
    let (copied, shared) = (Record::decode(bytes), Record::decode_shared(&bytes::Bytes::copy_from_slice(bytes)));
    assert_eq!(format!("{copied:?}"), format!("{shared:?}"), "the shared record differs");
    let again = match copied {
        Ok(Record::Issued) => Record::ISSUED.to_vec(),
        Ok(Record::Attempted(attempted)) => attempted.encode(),
        Ok(Record::Claimed(claimed)) => claimed.encode(),
        Ok(Record::Done(done)) => done.encode(),
        Err(_) => return,
    };
    assert_eq!(again, bytes, "the record has a second encoding");
}

/// Checks any bytes as replies of Redis: a part of a reply is never taken for a whole one, and redis-rs reads the same value.
///
/// # Panics
/// If an invariant does not hold.
#[cfg(feature = "redis")]
pub fn reply(bytes: &[u8]) {
    crate::store::check_replies(bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The seeds of the fuzzers.
    const SEEDS: [&[u8]; 9] = [
        b"ow1_AHAV5zh3eEYNpJtEYdKc02AAAAGh5bFR9Ld7tpRiI_iJFfC8M9vJu5Pp6xZ6setKmw",
        b"\"8e03978e-40d5-43dd-bc93-6894a57f9324\";a=1",
        b"\x05--xy\r\nContent-Disposition: form-data; name=\"_onceward\"\r\n\r\nt\r\n--xy--\r\n",
        b"\x02a=1&_onceward=t&b=%20",
        b"\x02i",
        b"\x02a0123456789abcdef0123456789abcdef0123456701234567",
        b"\x02c0123456789abcdef\x010123456789abcdef\x00\x000123456701234567\x00",
        b"$2\r\nOK\r\n*2\r\n:1\r\n$-1\r\n-ERR no\r\n+OK\r\n",
        b"%1\r\n+role\r\n#t\r\n>1\r\n+x\r\n=5\r\ntxt:a\r\n|1\r\n+a\r\n:1\r\n,1.5\r\n",
    ];

    fn all(bytes: &[u8]) {
        token(bytes);
        header(bytes);
        form(bytes);
        record(bytes);
        #[cfg(feature = "redis")]
        reply(bytes);
    }

    #[test]
    fn seeds_satisfy_all_invariants() {
        SEEDS.into_iter().for_each(all);
    }

    proptest! {
        #[test]
        fn mutated_seeds_satisfy_all_invariants(
            seed in prop::sample::select(SEEDS.to_vec()), place in any::<usize>(), with in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let mut bytes = seed.to_vec();
            let place = place % bytes.len();
            bytes.splice(place..=place, with);
            all(&bytes);
        }
    }
}
