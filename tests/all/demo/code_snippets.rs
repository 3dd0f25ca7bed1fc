//! The demo's snippets for actix-web compile: this file has them as code, and the page's file has them as text. For Python and Node,
//! see `backend_snippets.rs`.

use std::time::Duration;

use actix_web::rt::time::sleep;
use actix_web::{App, HttpResponse, web};
use onceward::actix::{Protect, SubjectFrom, token_route};
use onceward::store::Memory;
use onceward::{Guard, IntervalRules, KeyRules};

const PAGE: &str = include_str!("../../../web-demo/assets/snippets.js");

/// Asserts that the page shows this code, apart from white space.
fn assert_shown(code: &str) {
    let bare = |text: &str| text.replace([' ', '\n'], "");
    assert!(bare(PAGE).contains(&bare(code)), "the page does not show: {code}");
}

/// Runs code that the page must show.
macro_rules! shown {
    ($code:expr) => {{
        assert_shown(stringify!($code));
        $code
    }};
}

/// The imports at the head of this file match the table in the page.
#[test]
fn page_lists_the_import_of_each_name() {
    const HEAD: &str = include_str!("code_snippets.rs");
    let (_, table) = PAGE.split_once("const NAMES = {").expect("the table");
    let lines: Vec<&str> = table.split_once("};").expect("its end").0.trim().lines().map(str::trim).collect();
    assert_eq!(lines.len(), 6);
    for line in lines {
        let (path, names) = line.split_once(": [").expect(line);
        let names = names.trim_end_matches("],").replace('"', "");
        let names = if names.contains(',') { format!("{{{names}}}") } else { names };
        let import = format!("\nuse {}::{names};\n", path.trim_matches('"'));
        assert!(HEAD.contains(&import), "{import}");
    }
}

#[tokio::test]
async fn page_shows_code_that_compiles() {
    let guard = shown!(Guard::new(Memory::new()));
    let _ = (
        shown!(Protect::token(&guard, SubjectFrom::anonymous()).remember(Duration::from_secs(600))),
        shown!(Protect::token(&guard, SubjectFrom::anonymous())),
        shown!(Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable())),
        shown!(Protect::interval(&guard, SubjectFrom::client_address(), IntervalRules::new())),
    );
    let place_order = async || {
        shown!(sleep(Duration::from_millis(1200)).await);
        shown!(HttpResponse::ServiceUnavailable().finish())
    };
    let _: HttpResponse = shown!(HttpResponse::Created().body("ordered"));
    let _ = App::new()
        .service(shown!(token_route(&guard, SubjectFrom::anonymous())))
        .service(web::resource("/orders").route(shown!(web::post().to(place_order))));
}
