//! The words of the pages about error codes, in each language.

use onceward::Language;
use onceward_api::Retry;

/// The words of the pages. Text that contains markup is inserted as it is.
pub(super) struct PageWords {
    pub(super) lang: &'static str,
    pub(super) error_codes: &'static str,
    pub(super) introduction: &'static str,
    pub(super) code: &'static str,
    pub(super) meaning: &'static str,
    pub(super) status: &'static str,
    pub(super) retry: &'static str,
    more: &'static str,
    start_page: &'static str,
    all_codes: &'static str,
    documentation: &'static str,
    /// For `same`, `new_token` and `no`.
    advice: [&'static str; 3],
}

impl PageWords {
    /// Returns the words of a language; those of English, if it is another one.
    pub(super) fn of(tag: &str) -> &'static Self {
        if tag == Language::SIMPLIFIED_CHINESE { &SIMPLIFIED_CHINESE } else { &ENGLISH }
    }

    /// Returns the links on the pages.
    pub(super) fn navigation(&self) -> String {
        let Self { more, start_page, all_codes, documentation, .. } = self;
        format!(
            "<nav aria-label=\"{more}\"><a href=\"/\">{start_page}</a><a href=\"/problems\">{all_codes}</a>\
             <a href=\"/docs/\">{documentation}</a></nav>"
        )
    }

    /// Returns the advice for a client.
    pub(super) fn advice(&self, retry: Retry) -> &'static str {
        let [same, new_token, no] = self.advice;
        match retry {
            Retry::Same => same,
            Retry::NewToken => new_token,
            Retry::No => no,
        }
    }
}

static ENGLISH: PageWords = PageWords {
    lang: Language::ENGLISH,
    error_codes: "Error codes",
    introduction: "A rejected request receives a problem (RFC 9457) with one of these codes. <code>retry</code> tells a client what to do \
                   next:",
    code: "Code",
    meaning: "Meaning",
    status: "Status",
    retry: "Retry",
    more: "More",
    start_page: "Start page",
    all_codes: "All error codes",
    documentation: "API documentation",
    advice: [
        "Send the same request again, after <code>Retry-After</code>.",
        "This request ran nothing. Fetch a new token and send the request again, unless an earlier attempt is still without a response.",
        "Do not send the request again.",
    ],
};

static SIMPLIFIED_CHINESE: PageWords = PageWords {
    lang: Language::SIMPLIFIED_CHINESE,
    error_codes: "错误码",
    introduction: "被拒绝的请求会收到一个 problem 响应（RFC 9457），其中包含以下错误码之一。<code>retry</code> 告诉客户端下一步怎么做：",
    code: "错误码",
    meaning: "含义",
    status: "状态码",
    retry: "重试",
    more: "更多",
    start_page: "首页",
    all_codes: "全部错误码",
    documentation: "API 文档",
    advice: [
        "在 <code>Retry-After</code> 之后重新发送同一请求。",
        "本次请求没有执行。请获取新的令牌后重新发送；如果之前的某次尝试仍未收到响应，则不要重新发送。",
        "不要重新发送该请求。",
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_translated() {
        let words = |words: &PageWords| {
            let PageWords { error_codes, introduction, code, meaning, status, retry, .. } = words;
            let page = [*error_codes, introduction, code, meaning, status, retry];
            let more = [words.more, words.start_page, words.all_codes, words.documentation];
            page.into_iter().chain(more).chain(words.advice).map(str::to_owned).collect::<Vec<_>>()
        };
        for (english, chinese) in words(&ENGLISH).iter().zip(words(&SIMPLIFIED_CHINESE)) {
            let is_chinese = |text: &str| text.contains(|letter| ('\u{4e00}'..='\u{9fff}').contains(&letter));
            assert!(!english.is_empty() && !is_chinese(english) && is_chinese(&chinese), "{english}: {chinese}");
        }
        assert_eq!(PageWords::of("fr").lang, "en");
    }
}
