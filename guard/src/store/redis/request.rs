//! A command on one key, as it is sent: its arguments borrow from the caller, and are written into the buffer of a connection.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redis::Cmd;

use super::slot::slot_of;
use crate::ticket::Ticket;

/// The maximum number of arguments, the name of the command included.
const MAX_ARGUMENTS: usize = 8;
/// The length of a digest in base64url.
const DIGEST: usize = 43;

/// The name of a ticket's key, which is written or formatted on demand.
#[derive(Clone, Copy)]
pub(super) struct KeyName<'a> {
    pub(super) prefix: &'a str,
    pub(super) ticket: &'a Ticket,
}

impl KeyName<'_> {
    /// Returns the name of a key that does not exist, in the same slot.
    pub(super) fn probe(self) -> String {
        format!("{}:probe:{{{self}}}", self.prefix)
    }

    /// Returns the slot of the key in a cluster.
    pub(super) fn slot(self) -> usize {
        slot_of(self.to_string().as_bytes())
    }

    fn len(self) -> usize {
        self.prefix.len() + self.ticket.kind().as_str().len() + 2 + DIGEST
    }

    fn write_to(self, out: &mut Vec<u8>) {
        let mut digest = [0; DIGEST];
        // The digest always fits.
        let _ = URL_SAFE_NO_PAD.encode_slice(self.ticket.digest(), &mut digest);
        for part in [self.prefix.as_bytes(), b":", self.ticket.kind().as_str().as_bytes(), b":", &digest] {
            out.extend_from_slice(part);
        }
    }
}

impl fmt::Display for KeyName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.ticket.name(self.prefix))
    }
}

/// An argument of a command.
#[derive(Clone, Copy)]
pub(super) enum Argument<'a> {
    Text(&'a [u8]),
    Number(u64),
    /// The name of the request's key.
    Key,
}

/// A command on one key.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) key: KeyName<'a>,
    /// True if the response carries the server's epoch.
    pub(super) wants_epoch: bool,
    /// True if the command is not sent in one batch with others, for the benchmark.
    pub(super) is_alone: bool,
    arguments: [Argument<'a>; MAX_ARGUMENTS],
    count: usize,
}

impl<'a> Request<'a> {
    /// Creates a request from a command and its arguments, one of which is the key.
    pub(super) fn new<const COUNT: usize>(
        key: KeyName<'a>,
        wants_epoch: bool,
        arguments: [Argument<'a>; COUNT],
    ) -> Self {
        const { assert!(COUNT <= MAX_ARGUMENTS) };
        let mut all = [Argument::Key; MAX_ARGUMENTS];
        all[..COUNT].copy_from_slice(&arguments);
        Self { key, wants_epoch, is_alone: false, arguments: all, count: COUNT }
    }

    /// Creates a request that reads the value of the key.
    pub(super) fn look(key: KeyName<'a>, wants_epoch: bool) -> Self {
        Self::new(key, wants_epoch, [Argument::Text(b"GET"), Argument::Key])
    }

    /// Creates a request that runs a script on the key, named by its text or its digest.
    pub(super) fn script<const COUNT: usize>(
        key: KeyName<'a>,
        wants_epoch: bool,
        verb: &'a str,
        body: &'a str,
        arguments: [Argument<'a>; COUNT],
    ) -> Self {
        const { assert!(COUNT + 4 <= MAX_ARGUMENTS) };
        let call =
            [Argument::Text(verb.as_bytes()), Argument::Text(body.as_bytes()), Argument::Number(1), Argument::Key];
        let mut request = Self::new(key, wants_epoch, call);
        request.arguments[4..4 + COUNT].copy_from_slice(&arguments);
        request.count += COUNT;
        request
    }

    fn arguments(&self) -> &[Argument<'a>] {
        &self.arguments[..self.count]
    }

    /// Appends the command in the protocol of Redis.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        write_count(out, b'*', self.count);
        for argument in self.arguments() {
            match argument {
                Argument::Text(text) => write_bulk(out, text),
                Argument::Number(number) => write_bulk(out, Decimal::of(*number).digits()),
                Argument::Key => {
                    write_count(out, b'$', self.key.len());
                    self.key.write_to(out);
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }

    /// Returns the command for a connection of redis-rs.
    pub(super) fn command(&self) -> Cmd {
        let mut command = Cmd::new();
        for argument in self.arguments() {
            match argument {
                Argument::Text(text) => command.arg(*text),
                Argument::Number(number) => command.arg(*number),
                Argument::Key => command.arg(self.key.to_string()),
            };
        }
        command
    }
}

fn write_bulk(out: &mut Vec<u8>, text: &[u8]) {
    write_count(out, b'$', text.len());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// Appends the number of arguments, or the length of one.
fn write_count(out: &mut Vec<u8>, kind: u8, count: usize) {
    let digit = |number: usize| b'0' + (number % 10) as u8;
    // Usually one or two digits.
    match count {
        0..10 => out.extend_from_slice(&[kind, digit(count), b'\r', b'\n']),
        10..100 => out.extend_from_slice(&[kind, digit(count / 10), digit(count), b'\r', b'\n']),
        _ => {
            out.push(kind);
            out.extend_from_slice(Decimal::of(count as u64).digits());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A number in decimal digits, on the stack.
struct Decimal {
    digits: [u8; 20],
    first: usize,
}

impl Decimal {
    fn of(mut number: u64) -> Self {
        let mut decimal = Self { digits: [b'0'; 20], first: 20 };
        loop {
            decimal.first -= 1;
            decimal.digits[decimal.first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    fn digits(&self) -> &[u8] {
        &self.digits[self.first..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::Kind;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 250, 65_535, u64::MAX] {
            assert_eq!(Decimal::of(number).digits(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn request_is_encoded_as_redis_rs_encodes_its_command() {
        for kind in Kind::ALL {
            let ticket = Ticket::of(kind, b"x");
            let key = KeyName { prefix: "shop", ticket: &ticket };
            assert_eq!(key.to_string().len(), key.len());
            let value = [7; 300];
            let set = [Argument::Text(b"SET"), Argument::Key, Argument::Text(&value), Argument::Number(86_400_000)];
            for request in [
                Request::new(key, true, set),
                Request::new(key, false, [Argument::Text(b""), Argument::Key]),
                Request::script(key, true, "EVAL", "return 1", [Argument::Text(&value), Argument::Number(0)]),
            ] {
                let mut written = b"before".to_vec();
                request.write_to(&mut written);
                assert_eq!(written.strip_prefix(b"before"), Some(&request.command().get_packed_command()[..]));
            }
        }
    }
}
