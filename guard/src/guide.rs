//! Guides: one page per task, each with complete examples.
//!
//! | page | contents |
//! |---|---|
//! | [`concepts`] | policies, what counts as applied, the `Onceward-Outcome` header, bound tokens, glossary |
//! | [`actix`] | protecting actix-web routes, waiting, rolling it out |
//! | [`axum`] | protecting axum routes and tower services, the order of layers |
//! | [`keys`] | idempotency keys: what a duplicate receives, at most once or retryable |
//! | [`intervals`] | deduplication without a token or key, locks |
//! | [`webhooks`] | inbound webhooks by event id |
//! | [`jobs`] | jobs and queue consumers |
//! | [`rabbitmq`] | a consumer of RabbitMQ |
//! | [`schedules`] | scheduled jobs that run once per slot |
//! | [`locks`] | named locks |
//! | [`transactions`] | records that commit with your rows |
//! | [`languages`] | the language of rejections, adding your own |
//! | [`stores`] | memory, Redis, Valkey, Sentinel, Cluster, PostgreSQL, SQLite, your own |
//! | [`shutdown`] | graceful shutdown |
//! | [`spring`] | from the annotations of Spring articles to this library |
//! | [`testing`] | testing your handlers with duplicates, expiry, crashes and a failing store |
//!
//! The pages are Markdown files in the folder `docs` of this crate.

// A page links to others as `[Keys]`. The first definition of such a link counts: here it is the module, and at the end of the file, for
// readers of the Markdown, the other file.
macro_rules! pages {
    ($($page:ident: $file:literal),* $(,)?) => {
        $(
            #[doc = "[Actix]: crate::guide::actix"]
            #[doc = "[Axum]: crate::guide::axum"]
            #[doc = "[Concepts]: crate::guide::concepts"]
            #[doc = "[Intervals]: crate::guide::intervals"]
            #[doc = "[Jobs]: crate::guide::jobs"]
            #[doc = "[Keys]: crate::guide::keys"]
            #[doc = "[Languages]: crate::guide::languages"]
            #[doc = "[Locks]: crate::guide::locks"]
            #[doc = "[RabbitMQ]: crate::guide::rabbitmq"]
            #[doc = "[Schedules]: crate::guide::schedules"]
            #[doc = "[Shutdown]: crate::guide::shutdown"]
            #[doc = "[Stores]: crate::guide::stores"]
            #[doc = "[Testing]: crate::guide::testing"]
            #[doc = "[Transactions]: crate::guide::transactions"]
            #[doc = "[Webhooks]: crate::guide::webhooks"]
            #[doc = ""]
            #[doc = include_str!($file)]
            pub mod $page {}
        )*
    };
}

pages! {
    concepts: "../docs/concepts.md",
    actix: "../docs/actix.md",
    axum: "../docs/axum.md",
    keys: "../docs/keys.md",
    intervals: "../docs/intervals.md",
    webhooks: "../docs/webhooks.md",
    jobs: "../docs/jobs.md",
    rabbitmq: "../docs/rabbitmq.md",
    schedules: "../docs/schedules.md",
    locks: "../docs/locks.md",
    transactions: "../docs/transactions.md",
    languages: "../docs/languages.md",
    stores: "../docs/stores.md",
    shutdown: "../docs/shutdown.md",
    spring: "../docs/spring.md",
    testing: "../docs/testing.md",
}
