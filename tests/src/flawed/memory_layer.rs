//! An idempotency layer that stores keys in a map of this process, as many short examples do.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::Next;
use onceward_api::header::OUTCOME;

use crate::key_routes::KEY;

/// The known keys, each with the status of its response once there is one. Correct only if all requests share one layer and each
/// request passes through it once.
#[derive(Clone, Default)]
pub struct MemoryLayer(Arc<Mutex<HashMap<String, Option<u16>>>>);

impl MemoryLayer {
    /// Runs the first request under a key; the others receive its status, or 409 while it is in flight.
    pub async fn pass(
        self,
        request: ServiceRequest,
        next: Next<BoxBody>,
    ) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
        let key = request.headers().get(KEY).and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
        let known = match self.keys().entry(key.clone()) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(free) => {
                free.insert(None);
                None
            }
        };
        match known {
            Some(Some(status)) => {
                let status = StatusCode::from_u16(status).unwrap_or_default();
                Ok(request.into_response(HttpResponse::build(status).insert_header((OUTCOME, "replayed")).finish()))
            }
            Some(None) => {
                Ok(request.into_response(HttpResponse::Conflict().insert_header((OUTCOME, "in_progress")).finish()))
            }
            None => {
                let answer = next.call(request).await?;
                let status = (answer.status() != StatusCode::CONFLICT).then(|| answer.status().as_u16());
                match status {
                    Some(status) => self.keys().insert(key, Some(status)),
                    None => self.keys().remove(&key),
                };
                Ok(answer)
            }
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<String, Option<u16>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
