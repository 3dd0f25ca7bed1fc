//! The page that a person sees after a rejected form: what happened, whether it was carried out, and what to do next. The technical details
//! for support are collapsed.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_api::Problem;
use sha2::{Digest as _, Sha256};

use crate::language::Texts;

const STYLE: &str = ":root{color-scheme:light dark;--paper:#f7f6f3;--ink:#1b1a20;--muted:#5b5963;--line:#cbc7bc;--link:#0a6b5d}\
    @media (prefers-color-scheme:dark){:root{--paper:#121317;--ink:#edecf2;--muted:#a7a6b3;--line:#44454f;--link:#5fd0b8}}\
    body{font:1.1rem/1.55 system-ui,sans-serif;max-width:34rem;margin:0 auto;padding:clamp(1.5rem,10vh,6rem) 1.25rem 2rem;\
    background:var(--paper);color:var(--ink)}h1{font-size:1.6rem;line-height:1.25;margin:0 0 1rem}p{margin:0 0 1rem}\
    a{color:var(--link)}.home{display:inline-block;padding:.5rem 1rem;border:1px solid currentColor;border-radius:.6rem;\
    text-decoration:none;font-weight:600}a:focus-visible,summary:focus-visible{outline:3px solid var(--link);outline-offset:3px}\
    details{margin-top:2rem;padding-top:1rem;border-top:1px solid var(--line);font-size:.9rem;color:var(--muted)}\
    summary{cursor:pointer;padding:.2rem 0}dl{margin:.6rem 0 0}dt{font-weight:600}dd{margin:0 0 .5rem;overflow-wrap:anywhere}";

/// The end of the technical details. Text from outside is escaped, so this markup occurs once.
const DETAILS_END: &str = "</dl></details>";

/// Returns the content security policy of the page: it loads nothing and allows only its own style. The application's own policy would
/// not allow that style.
pub(super) fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let digest = STANDARD.encode(Sha256::digest(STYLE));
        format!("default-src 'none'; style-src 'sha256-{digest}'")
    });
    &POLICY
}

/// Renders the page. It needs no script and loads nothing. `message` replaces the sentence that says what happened.
pub(super) fn render(problem: &Problem, message: Option<&str>, texts: &Texts) -> String {
    let (lang, text, labels) = texts.page();
    let [title, happened, next] = [&*text.title, message.unwrap_or(&text.happened), &*text.next].map(escape);
    let back = escape(labels.back_after(problem.code));
    format!(
        "<!doctype html>\n<html lang=\"{lang}\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title><style>{STYLE}</style></head>\
         <body><main><h1>{title}</h1><p>{happened}</p><p>{next}</p>\
         <p>{back}</p>\
         <p><a class=\"home\" href=\"/\">{start_page}</a></p>\
         <details><summary>{details}</summary><dl><dt>{code_label}</dt><dd><code>{code}</code> ({status})</dd>\
         <dt>{address}</dt><dd>{path}</dd><dt>{explanation}</dt><dd>{detail}</dd>{DETAILS_END}</main></body></html>\n",
        lang = escape(lang),
        start_page = escape(&labels.start_page),
        details = escape(&labels.details),
        code_label = escape(&labels.code),
        address = escape(&labels.address),
        explanation = escape(&labels.explanation),
        code = problem.code,
        status = problem.status,
        path = escape(problem.instance.as_deref().unwrap_or_default()),
        detail = escape(&problem.detail),
    )
}

/// Adds the id of the request to the technical details. Returns `None` if the id is not plain text.
pub(super) fn with_request_id(page: &str, label: &str, id: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:;=/+@".contains(&byte);
    if !(1..=128).contains(&id.len()) || !id.bytes().all(is_plain) {
        return None;
    }
    let entry = format!("<dt>{}</dt><dd><code>{id}</code></dd>{DETAILS_END}", escape(label));
    Some(page.replacen(DETAILS_END, &entry, 1))
}

/// Escapes text for use in a page and in an attribute.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use onceward_api::Code;

    use super::*;
    use crate::language::{Language, Languages};

    fn render(problem: &Problem, message: Option<&str>) -> String {
        super::render(problem, message, &Languages::fixed(Language::english()).texts(problem.code, None))
    }

    /// Returns the text that a customer sees without opening the details.
    fn visible(page: &str) -> String {
        let body = page.split_once("<main>").unwrap().1;
        body.split_once("<details>").unwrap().0.to_lowercase()
    }

    #[test]
    fn page_has_outcome_next_step_and_no_jargon() {
        const JARGON: [&str; 18] = [
            "token",
            "tokens",
            "key",
            "keys",
            "claim",
            "store",
            "rfc",
            "lease",
            "idempotency",
            "idempotent",
            "handler",
            "header",
            "body",
            "json",
            "subject",
            "retry",
            "replay",
            "http",
        ];
        for code in Code::ALL {
            let page = render(&Problem::new(code).instance("/orders"), None);
            let visible = visible(&page);
            let words = visible.split(|letter: char| !letter.is_alphanumeric());
            for word in words {
                assert!(!JARGON.contains(&word), "{code} says {word}: {visible}");
            }
            let outcomes = ["carried out", "nothing at this address", "how it ended"];
            assert!(outcomes.iter().any(|outcome| visible.contains(outcome)), "{code}: {visible}");
            assert!(visible.contains("back button") && visible.contains("href=\"/\""), "{code}: {visible}");
            assert!(page.contains(&format!("<code>{code}</code> ({})", code.status())) && page.contains("/orders"));
        }
    }

    #[test]
    fn page_follows_colour_scheme_without_script() {
        let page = render(&Problem::new(Code::TokenUsed), None);
        assert!(page.contains("prefers-color-scheme:dark") && page.contains("content=\"light dark\""), "{page}");
        assert!(!page.contains("<script") && !page.contains("onclick") && !page.contains("src="), "{page}");
    }

    #[test]
    fn text_in_a_page_is_escaped() {
        let written = "<script>alert(\"&\")</script>";
        let problem = Problem::new(Code::BadRequest).detail(written).instance(written);
        for page in [render(&problem, None), render(&problem, Some(written))] {
            assert!(page.contains("&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;"), "{page}");
            assert!(!page.contains("<script"), "{page}");
        }
    }

    #[test]
    fn request_id_is_shown_if_plain() {
        let page = render(&Problem::new(Code::Internal), None);
        let with_id = with_request_id(&page, "Request", "8e03978e-40d5").unwrap();
        assert!(with_id.contains("<dt>Request</dt><dd><code>8e03978e-40d5</code></dd></dl></details>"), "{with_id}");
        let aws = "Root=1-abc;Sampled=1";
        assert!(with_request_id(&page, "Request", aws).unwrap().contains("<code>Root=1-abc;Sampled=1</code>"));
        for id in ["", "<b>", "a b", &"a".repeat(129)] {
            assert_eq!(with_request_id(&page, "Request", id), None, "{id}");
        }
    }
}
