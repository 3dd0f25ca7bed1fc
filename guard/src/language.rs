//! The languages of rejections: their texts, and the choice between them.

mod english;
mod preference;
mod simplified_chinese;
mod wording;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use onceward_api::Code;

use self::preference::{Choice, Preference};
pub use self::wording::{PageLabels, PageText, Wording};

type Words = Arc<dyn Fn(Code) -> Option<Wording> + Send + Sync>;

/// A language in which a rejection can be said: a tag, such as `de` or `pt-BR`, and the texts of the codes.
///
/// English and Simplified Chinese are complete. An application adds others:
///
/// ```
/// use onceward::api::Code;
/// use onceward::{Language, Languages, PageLabels, PageText, Wording};
///
/// let german = Language::new("de", |code| match code {
///     Code::TokenUsed => {
///         let wording = Wording::new("Bereits gesendet", "Das Token wurde schon verwendet. Es wurde nichts erneut ausgeführt.");
///         let page = PageText::new(
///             "Das wurde bereits gesendet",
///             "Wir haben dieses Formular schon erhalten und nicht noch einmal bearbeitet.",
///             "Bitte suchen Sie Ihre erste Bestätigung.",
///         );
///         Some(wording.page(page))
///     }
///     // A code without a text is said in English.
///     _ => None,
/// });
/// let german = german.page_labels(PageLabels {
///     back_to_form: "Die Zurück-Taste führt zum Formular.".into(),
///     back_to_last_page: "Die Zurück-Taste führt zur vorigen Seite.".into(),
///     start_page: "Zur Startseite".into(),
///     details: "Angaben für den Support".into(),
///     code: "Code".into(),
///     address: "Adresse".into(),
///     explanation: "Erklärung".into(),
///     request: "Anfrage".into(),
/// });
/// let languages = Languages::negotiated().with(german);
/// # let _ = languages;
/// ```
#[derive(Clone)]
pub struct Language {
    tag: Cow<'static, str>,
    /// `None` for a language whose texts are all our own.
    words: Option<Words>,
    labels: Option<Arc<PageLabels>>,
}

impl Language {
    /// The tag of English.
    pub const ENGLISH: &str = "en";
    /// The tag of Simplified Chinese.
    pub const SIMPLIFIED_CHINESE: &str = "zh-CN";

    /// Creates a language of the application. A code for which `words` returns `None` is said in English; with the tag of a language that
    /// is built in, in the built-in words.
    pub fn new(
        tag: impl Into<Cow<'static, str>>,
        words: impl Fn(Code) -> Option<Wording> + Send + Sync + 'static,
    ) -> Self {
        Self { tag: tag.into(), words: Some(Arc::new(words)), labels: None }
    }

    /// Returns English.
    pub fn english() -> Self {
        Self { tag: Self::ENGLISH.into(), words: None, labels: None }
    }

    /// Returns Simplified Chinese.
    pub fn simplified_chinese() -> Self {
        Self { tag: Self::SIMPLIFIED_CHINESE.into(), words: None, labels: None }
    }

    /// Sets the words of every page. Without them, pages are in English; problems are not affected.
    #[must_use]
    pub fn page_labels(mut self, labels: PageLabels) -> Self {
        self.labels = Some(Arc::new(labels));
        self
    }

    /// Returns the tag.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the language's own words for a code.
    fn wording(&self, code: Code) -> Option<Wording> {
        let own = self.words.as_ref().and_then(|words| words(code));
        own.or_else(|| BuiltIn::of(&self.tag)?.wording(code))
    }

    fn labels(&self) -> Option<PageLabels> {
        let own = self.labels.as_ref().map(|labels| PageLabels::clone(labels));
        own.or_else(|| Some(BuiltIn::of(&self.tag)?.labels()))
    }
}

impl fmt::Debug for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Language({})", self.tag)
    }
}

/// The languages whose texts are complete.
#[derive(Debug, Clone, Copy)]
enum BuiltIn {
    English,
    SimplifiedChinese,
}

impl BuiltIn {
    fn of(tag: &str) -> Option<Self> {
        match tag {
            _ if tag.eq_ignore_ascii_case(Language::ENGLISH) => Some(Self::English),
            _ if tag.eq_ignore_ascii_case(Language::SIMPLIFIED_CHINESE) => Some(Self::SimplifiedChinese),
            _ => None,
        }
    }

    /// Returns the texts of a code; `None` for a code without a text, which a test rules out.
    fn wording(self, code: Code) -> Option<Wording> {
        match self {
            Self::English => Some(english::wording(code)),
            Self::SimplifiedChinese => simplified_chinese::wording(code),
        }
    }

    fn labels(self) -> PageLabels {
        match self {
            Self::English => english::LABELS,
            Self::SimplifiedChinese => simplified_chinese::LABELS,
        }
    }
}

/// The languages of a guard's rejections, set with [`GuardBuilder::languages`](crate::GuardBuilder::languages).
///
/// The default is [`negotiated`](Self::negotiated). A language changes the title, the detail and the page of a rejection; never its code,
/// status, `retry` or an `Onceward-…` header. A text of the application, such as
/// [`IntervalRules::message`](crate::IntervalRules::message), stays as it is.
#[derive(Debug, Clone)]
pub struct Languages {
    /// All languages, those of the application last; the first is the default.
    known: Vec<Language>,
    is_fixed: bool,
}

impl Languages {
    /// Chooses by the `Accept-Language` header of each request: English or Simplified Chinese (`zh`, `zh-CN`, `zh-Hans`, `zh-SG`), and
    /// English if the header is absent or names none of the languages.
    pub fn negotiated() -> Self {
        Self { known: vec![Language::english(), Language::simplified_chinese()], is_fixed: false }
    }

    /// Uses one language for every request.
    pub fn fixed(language: Language) -> Self {
        Self { known: vec![language], is_fixed: true }
    }

    /// Adds a language to choose from; one with the same tag is replaced. Has no effect on a [`fixed`](Self::fixed) language.
    #[must_use]
    pub fn with(mut self, language: Language) -> Self {
        if self.is_fixed {
            return self;
        }
        match self.known.iter_mut().find(|known| known.tag.eq_ignore_ascii_case(&language.tag)) {
            Some(known) => *known = language,
            None => self.known.push(language),
        }
        self
    }

    /// Returns true if each request's header decides.
    pub fn is_negotiated(&self) -> bool {
        !self.is_fixed
    }

    /// Returns the tag of the language for a request, by the value of its `Accept-Language` header.
    pub fn tag_for(&self, accept_language: Option<&[u8]>) -> &str {
        self.choose(accept_language).tag()
    }

    /// Returns the texts for a code, in the language for a request.
    pub fn texts(&self, code: Code, accept_language: Option<&[u8]>) -> Texts {
        let chosen = self.choose(accept_language);
        let fallback = || (Cow::Borrowed(Language::ENGLISH), english::wording(code));
        let (tag, wording) = chosen.wording(code).map_or_else(fallback, |wording| (chosen.tag.clone(), wording));
        let labels = chosen.labels().filter(|_| tag == chosen.tag);
        Texts { tag, wording, labels, code }
    }

    fn choose(&self, accept_language: Option<&[u8]>) -> &Language {
        static ENGLISH: Language = Language { tag: Cow::Borrowed(Language::ENGLISH), words: None, labels: None };
        let first = self.known.first().unwrap_or(&ENGLISH);
        let (false, Some(header)) =
            (self.is_fixed, accept_language.and_then(|header| std::str::from_utf8(header).ok()))
        else {
            return first;
        };
        let mut best: Option<(Choice, &Language)> = None;
        for language in &self.known {
            let choice = Preference::of(&language.tag, header).choice();
            // The first of equal ones: English before the others.
            if let Some(choice) = choice
                && best.is_none_or(|(other, _)| choice.is_better_than(other))
            {
                best = Some((choice, language));
            }
        }
        best.map_or(first, |(_, language)| language)
    }
}

impl Default for Languages {
    fn default() -> Self {
        Self::negotiated()
    }
}

/// The texts of a rejection, in the language that was chosen for it.
#[derive(Debug, Clone)]
pub struct Texts {
    tag: Cow<'static, str>,
    wording: Wording,
    /// `None` if the language has no words for a page.
    labels: Option<PageLabels>,
    code: Code,
}

impl Texts {
    /// Returns the tag of the language that the title and the detail are in.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the short summary.
    pub fn title(&self) -> &str {
        &self.wording.title
    }

    /// Returns the cause, and the next step.
    pub fn detail(&self) -> &str {
        &self.wording.detail
    }

    /// Returns the page for customers: the tag of its language, its text and its labels. It is in English if the language has no page for
    /// this code.
    pub(crate) fn page(&self) -> (&str, PageText, PageLabels) {
        match (&self.wording.page, &self.labels) {
            (Some(page), Some(labels)) => (&self.tag, page.clone(), labels.clone()),
            _ => (Language::ENGLISH, english::page(self.code), english::LABELS),
        }
    }
}

#[cfg(test)]
mod tests;
