//! Body fields that a fingerprint includes, named by JSON pointers (RFC 6901).

use std::io;

use super::content_digest::ContentDigest;

/// Body fields included in the fingerprint. Default: all.
///
/// A JSON pointer names a field: `/amount`, `/items/0/id`. In a form, it is `/` and the name of the field, and matches all fields of that
/// name. A body that has no fields, or cannot be parsed, is always included as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    pub(super) chosen: Chosen,
    pub(super) without_files: bool,
    /// True if the bytes of the body are compared, whatever its content type.
    pub(super) is_raw: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Chosen {
    #[default]
    All,
    Only(Vec<Pointer>),
    AllBut(Vec<Pointer>),
}

impl Fields {
    /// Includes every field.
    pub fn all() -> Self {
        Self::default()
    }

    /// Includes the body byte by byte: a different order of members, or another spelling of a number, is different content.
    pub fn raw() -> Self {
        Self { is_raw: true, ..Self::default() }
    }

    /// Includes only these fields. A missing field differs from one that is null or empty.
    ///
    /// # Errors
    /// If one of them is not a JSON pointer.
    pub fn only(pointers: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, BadPointer> {
        Ok(Self { chosen: Chosen::Only(parse(pointers)?), ..Self::default() })
    }

    /// Includes every field except these, such as the time at which a request was sent. Whether they are present does not matter; an
    /// element that is excluded from a list leaves no gap.
    ///
    /// # Errors
    /// If one of them is not a JSON pointer.
    pub fn all_but(pointers: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, BadPointer> {
        Ok(Self { chosen: Chosen::AllBut(parse(pointers)?), ..Self::default() })
    }

    /// Excludes the files of a multipart form: the parts that have a filename.
    #[must_use]
    pub fn without_files(mut self) -> Self {
        self.without_files = true;
        self
    }
}

/// Parses pointers and sorts them, because their order does not matter.
fn parse(pointers: impl IntoIterator<Item: AsRef<str>>) -> Result<Vec<Pointer>, BadPointer> {
    let mut parsed = pointers.into_iter().map(|text| Pointer::parse(text.as_ref())).collect::<Result<Vec<_>, _>>()?;
    parsed.sort();
    parsed.dedup();
    Ok(parsed)
}

/// The names on the path to a field; an empty path is the whole body.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    pub(crate) fn parse(text: &str) -> Result<Self, BadPointer> {
        let mut names = text.split('/');
        let names = match names.next() {
            Some("") => names.map(unescape).collect(),
            _ => None,
        };
        names.map(Self).ok_or_else(|| BadPointer { pointer: text.to_owned() })
    }

    /// Returns the pointer as it is written.
    pub(crate) fn text(&self) -> String {
        self.0.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }

    pub(super) fn write(&self, to: &mut ContentDigest) {
        to.count(self.0.len());
        self.0.iter().for_each(|name| to.bytes(name.as_bytes()));
    }
}

/// Unescapes `~1` to a slash and `~0` to a tilde. Returns `None` if anything else follows a tilde.
fn unescape(name: &str) -> Option<String> {
    let mut pieces = name.split('~');
    let first = pieces.next()?.to_owned();
    pieces.try_fold(first, |name, piece| {
        let rest = piece.strip_prefix('0').map(|rest| ("~", rest));
        let (escaped, rest) = rest.or_else(|| piece.strip_prefix('1').map(|rest| ("/", rest)))?;
        Some(name + escaped + rest)
    })
}

/// The error for a text that is not a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{pointer}` is not a JSON pointer: start it with a slash, as in `/order/amount`, and write `~0` for `~` and `~1` for `/` in a name"
)]
pub struct BadPointer {
    pointer: String,
}

/// For a `main` that returns [`io::Result`].
impl From<BadPointer> for io::Error {
    fn from(error: BadPointer) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        Pointer::parse(text).unwrap().0
    }

    #[test]
    fn pointer_is_parsed_as_rfc_6901_defines() {
        for text in ["", "/", "/a/b", "/~0~1/~01"] {
            assert_eq!(Pointer::parse(text).unwrap().text(), text);
        }
        assert_eq!(names(""), [""; 0]);
        assert_eq!(names("/"), [""]);
        assert_eq!(names("/a/0/b"), ["a", "0", "b"]);
        assert_eq!(names("/a~1b/m~0n"), ["a/b", "m~n"]);
        assert_eq!(names("/~01"), ["~1"]);
    }

    #[test]
    fn invalid_pointer_is_rejected_by_name() {
        for bad in ["amount", "a/b", "#/a", " /a", "/a~", "/a~2b", "~0"] {
            let error = Fields::only(["/good", bad]).unwrap_err();
            assert!(error.to_string().contains(&format!("`{bad}`")), "{error}");
            assert_eq!(Fields::all_but([bad]), Err(error));
        }
    }

    #[test]
    fn order_of_fields_does_not_matter() {
        assert_eq!(Fields::only(["/a", "/b", "/a"]), Fields::only(["/b", "/a"]));
    }
}
