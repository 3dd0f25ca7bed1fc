//! The demo's snippets for actix-web and axum compile: this file has them as code, and the page's file has them as text. For Python and
//! Node, see `backend_snippets.rs`.

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

/// The imports of each module of this file match the table of the page for that framework.
#[test]
fn page_lists_the_import_of_each_name() {
    const FILE: &str = include_str!("code_snippets.rs");
    for (framework, count) in [("actix", 6), ("axum", 9)] {
        let (_, table) = PAGE.split_once(&format!("const {}_NAMES = {{", framework.to_uppercase())).expect("the table");
        let lines: Vec<&str> = table.split_once("};").expect("its end").0.trim().lines().map(str::trim).collect();
        assert_eq!(lines.len(), count, "{framework}");
        let (_, module) = FILE.split_once(&format!("\nmod {framework} {{")).expect("a module");
        let (module, _) = module.split_once("\n}\n").expect("its end");
        for line in lines {
            let (path, names) = line.split_once(": [").expect(line);
            let names = names.trim_end_matches("],").replace('"', "");
            let names = if names.contains(',') { format!("{{{names}}}") } else { names };
            let import = format!("\n    use {}::{names};\n", path.trim_matches('"'));
            assert!(module.contains(&import), "{framework}: {import}");
        }
    }
}

mod actix {
    use std::time::Duration;

    use actix_web::rt::time::sleep;
    use actix_web::{App, HttpResponse, web};
    use onceward::actix::{Protect, SubjectFrom, token_route};
    use onceward::store::Memory;
    use onceward::{Guard, IntervalRules, KeyRules};

    use super::assert_shown;

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
}

mod axum {
    use std::net::SocketAddr;
    use std::time::Duration;

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::post;
    use onceward::axum::{Protect, SubjectFrom, entered, token_route};
    use onceward::store::Memory;
    use onceward::{Guard, IntervalRules, KeyRules};
    use tokio::time::sleep;

    use super::assert_shown;

    #[tokio::test]
    async fn page_shows_code_that_compiles() {
        let guard = shown!(Guard::new(Memory::new()));
        let protects = [
            shown!(Protect::token(&guard, SubjectFrom::anonymous()).remember(Duration::from_secs(600))).into_any(),
            shown!(Protect::token(&guard, SubjectFrom::anonymous())).into_any(),
            shown!(Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable())).into_any(),
            shown!(Protect::interval(&guard, SubjectFrom::client_address(), IntervalRules::new())).into_any(),
        ];
        let place_order = async || -> (StatusCode, &'static str) {
            shown!(sleep(Duration::from_millis(1200)).await);
            let _ = shown!((StatusCode::CREATED, "ordered"));
            shown!((StatusCode::SERVICE_UNAVAILABLE, ""))
        };
        for protect in protects {
            let app = shown!(Router::new())
                .merge(shown!(token_route(&guard, SubjectFrom::anonymous())))
                .route("/orders", shown!(post(entered(place_order)).layer(protect)));
            let _ = shown!(app.into_make_service_with_connect_info::<SocketAddr>());
        }
    }
}
