use super::*;

/// Returns everything that a language says about a code: title, detail, and the page with its labels.
fn sentences(languages: &Languages, code: Code) -> Vec<String> {
    let texts = languages.texts(code, None);
    let (_, page, labels) = texts.page();
    let PageLabels { start_page, details, code: label, address, explanation, request, .. } = &labels;
    let sentences = [texts.title(), texts.detail(), &page.title, &page.happened, &page.next, labels.back_after(code)];
    let words = [start_page, details, label, address, explanation, request];
    sentences.into_iter().map(str::to_owned).chain(words.map(|word| word.to_string())).collect()
}

fn is_chinese(letter: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&letter)
}

#[test]
fn every_code_has_a_text_in_every_language() {
    let [english, chinese] = [Language::english(), Language::simplified_chinese()].map(Languages::fixed);
    for code in Code::ALL {
        assert_eq!(chinese.texts(code, None).tag(), "zh-CN", "{code} has no Chinese text");
        for (english, chinese) in sentences(&english, code).iter().zip(sentences(&chinese, code)) {
            assert!(!english.trim().is_empty() && !english.contains(is_chinese), "{code}: {english}");
            assert!(chinese.contains(is_chinese), "{code}: {chinese}");
            assert!(!chinese.contains([',', ';', '?', '!']), "{code} has half-width punctuation: {chinese}");
        }
    }
}

#[test]
fn codes_of_one_language_have_different_details() {
    for language in [Language::english(), Language::simplified_chinese()] {
        let languages = Languages::fixed(language);
        let texts = Code::ALL.map(|code| languages.texts(code, None));
        for (at, one) in texts.iter().enumerate() {
            assert!(texts[at + 1..].iter().all(|other| other.detail() != one.detail()), "{}", one.detail());
        }
    }
}

#[test]
fn chinese_page_has_no_jargon() {
    let chinese = Languages::fixed(Language::simplified_chinese());
    for code in Code::ALL {
        let text = sentences(&chinese, code)[2..].concat();
        for jargon in ["令牌", "幂等", "存储", "请求头", "请求体", "执行权", "核销", "代理", "主体", "重试"]
        {
            assert!(!text.contains(jargon), "{code} says {jargon}: {text}");
        }
        let outcomes = ["处理", "没有任何内容"];
        assert!(outcomes.iter().any(|outcome| text.contains(outcome)), "{code}: {text}");
    }
}

#[test]
fn language_follows_the_header() {
    let table = [
        (None, "en"),
        (Some(""), "en"),
        (Some("zh"), "zh-CN"),
        (Some("zh-CN"), "zh-CN"),
        (Some("ZH-cn"), "zh-CN"),
        (Some("zh-Hans"), "zh-CN"),
        (Some("zh-Hans-CN"), "zh-CN"),
        (Some("zh-SG"), "zh-CN"),
        (Some("zh-CN,zh;q=0.9,en;q=0.8"), "zh-CN"),
        (Some("en,zh-CN;q=0.9"), "en"),
        (Some("en;q=0.8, zh-CN;q=0.9"), "zh-CN"),
        (Some("en-US,en;q=0.5,zh;q=0.8"), "en"),
        (Some("fr-FR, zh;q=0.1"), "zh-CN"),
        (Some("fr"), "en"),
        (Some("*"), "en"),
        (Some("en;q=0, *"), "zh-CN"),
        (Some("*;q=0.8, zh;q=0.5"), "en"),
        (Some("zh;q=0"), "en"),
        (Some("zh-CN;q=0, zh"), "en"),
        (Some("en-GB;q=0, en-US, zh;q=0.1"), "en"),
        (Some("en-US, en-GB;q=0, zh;q=0.1"), "en"),
        (Some("zh-SG;q=0, zh-Hans, en;q=0.1"), "zh-CN"),
        (Some("zh;q=0.000, en;q=0.001"), "en"),
        // Traditional Chinese is another language, unless the reader accepts any Chinese.
        (Some("zh-TW"), "en"),
        (Some("zh-Hant-HK,en;q=0.5"), "en"),
        (Some("zh-TW,zh;q=0.9,en;q=0.8"), "zh-CN"),
        (Some("zhx, zh_CN"), "en"),
        (Some("zh;q=2, zh;q=x, ;;;, ,"), "en"),
        (Some(" zh ; Q = 0.3 "), "zh-CN"),
    ];
    let languages = Languages::negotiated();
    for (header, tag) in table {
        assert_eq!(languages.tag_for(header.map(str::as_bytes)), tag, "{header:?}");
    }
    assert_eq!(languages.tag_for(Some(b"zh\xff")), "en", "not UTF-8");
}

#[test]
fn fixed_language_ignores_the_header() {
    let languages = Languages::fixed(Language::simplified_chinese()).with(Language::english());
    for header in ["en", "*", "zh;q=0, en"] {
        assert_eq!(languages.tag_for(Some(header.as_bytes())), "zh-CN", "{header}");
    }
}

#[test]
fn application_adds_languages() {
    let words = |text: &'static str| move |code| (code == Code::TokenUsed).then(|| Wording::new(text, text));
    let languages = Languages::negotiated()
        .with(Language::new("pt-BR", words("já enviado")))
        .with(Language::new("zh-TW", words("請勿重複提交")));
    let title = |header: &str| {
        let texts = languages.texts(Code::TokenUsed, Some(header.as_bytes()));
        (texts.tag().to_owned(), texts.title().to_owned())
    };
    let said = |tag: &str, title: &str| (tag.to_owned(), title.to_owned());
    for header in ["pt-BR", "pt", "pt-br-x-more", "fr, pt-BR;q=0.2"] {
        assert_eq!(title(header), said("pt-BR", "já enviado"), "{header}");
    }
    assert_eq!(title("pt-PT").0, "en");
    for header in ["zh-TW", "zh-Hant", "zh-HK"] {
        assert_eq!(title(header), said("zh-TW", "請勿重複提交"), "{header}");
    }
    assert_eq!(title("zh"), said("zh-CN", "请勿重复提交"));
    let missing = languages.texts(Code::KeyReused, Some(b"pt-BR"));
    assert_eq!((missing.tag(), missing.title()), ("en", Code::KeyReused.title()), "a missing code is said in English");
    assert_eq!(languages.texts(Code::TokenUsed, Some(b"pt-BR")).page().0, "en", "the language has no page");
    let added = ["pt", "pt-BR", "zh-TW", "zh-HK", "en-GB"].map(|tag| Language::new(tag, words("own")));
    let languages = added.into_iter().fold(Languages::negotiated(), Languages::with);
    let tag = |header: &str| languages.tag_for(Some(header.as_bytes())).to_owned();
    for exact in ["pt", "pt-BR", "zh-TW", "zh-HK", "en-GB", "en"] {
        assert_eq!(tag(exact), exact);
    }
    assert_eq!(tag("en-GB,en;q=0.9"), "en-GB");
    assert_eq!((tag("en-AU").as_str(), tag("en, en-GB").as_str(), tag("pt-PT").as_str()), ("en", "en", "pt"));
    assert_eq!(tag("zh-MO, zh-HK;q=0.9"), "zh-TW", "the weight counts before the closeness");
}

#[test]
fn application_replaces_words_of_a_built_in_language() {
    let own =
        Language::new("zh-CN", |code| (code == Code::TokenUsed).then(|| Wording::new("订单已提交", "无需再次提交。")));
    let languages = Languages::negotiated().with(own);
    let texts = |code| languages.texts(code, Some(b"zh"));
    assert_eq!(texts(Code::TokenUsed).title(), "订单已提交");
    assert_eq!((texts(Code::KeyReused).tag(), texts(Code::KeyReused).title()), ("zh-CN", "幂等键已用于其他请求"));
}
