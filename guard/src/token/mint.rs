//! Signs tokens and verifies signatures, without a store command.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use onceward_api::Code;
use sha2::Sha256;
use uuid::Uuid;

use crate::binding::Binding;
use crate::digest;
use crate::epoch::Epoch;
use crate::subject::Subject;
use crate::token::secret::Secret;
use crate::token::{Credential, FLAG_ACTION, FLAG_SUBJECT, TAG, Token, TokenFields};

/// Signs with one secret, and accepts the signatures of several.
#[derive(Clone)]
pub(crate) struct Mint {
    keys: Vec<Hmac<Sha256>>,
}

impl Mint {
    /// Creates a mint that signs with the first secret and accepts the signatures of all of them.
    pub(crate) fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self { keys: secrets.into_iter().map(|secret| keyed(&secret)).collect() }
    }

    /// Signs a token with this id.
    pub(crate) fn sign(&self, id: Uuid, expires_at: u64, epoch: Epoch, bound: &Binding<'_>) -> Token {
        let mut flags = 0;
        flags |= if bound.action.is_some() { FLAG_ACTION } else { 0 };
        flags |= if bound.subject.is_some() { FLAG_SUBJECT } else { 0 };
        let fields = TokenFields { flags, id, expires_at, epoch };
        let mac = cover(self.keys[0].clone(), &fields, bound.action.as_deref(), bound.subject.as_ref());
        let mut tag = [0; TAG];
        tag.copy_from_slice(&mac.finalize().into_bytes()[..TAG]);
        fields.seal(tag)
    }

    /// Signs the bytes of a pass.
    pub(crate) fn sign_pass(&self, bytes: &[u8]) -> [u8; TAG] {
        let mut tag = [0; TAG];
        tag.copy_from_slice(&cover_pass(self.keys[0].clone(), bytes).finalize().into_bytes()[..TAG]);
        tag
    }

    /// Returns whether one of the secrets signed this pass.
    pub(crate) fn is_pass(&self, bytes: &[u8], tag: &[u8; TAG]) -> bool {
        self.keys.iter().any(|key| cover_pass(key.clone(), bytes).verify_truncated_left(tag).is_ok())
    }

    /// Verifies a token that a subject presents for an action. The error is the code of the rejection.
    pub(crate) fn verify(
        &self,
        credential: &Credential,
        action: &str,
        subject: &Subject<'_>,
    ) -> Result<TokenFields, Code> {
        let (fields, tag) = credential.presented()?;
        let action = fields.names_action().then_some(action);
        let subject = fields.names_subject().then_some(subject);
        let good =
            self.keys.iter().any(|key| cover(key.clone(), fields, action, subject).verify_truncated_left(tag).is_ok());
        if good { Ok(*fields) } else { Err(Code::TokenInvalid) }
    }
}

impl fmt::Debug for Mint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mint").field("secrets", &self.keys.len()).finish_non_exhaustive()
    }
}

fn keyed(secret: &Secret) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length")
}

/// Feeds the bytes of a pass into the MAC under a label, so that no token is ever signed as the same bytes.
fn cover_pass(mut mac: Hmac<Sha256>, bytes: &[u8]) -> Hmac<Sha256> {
    digest::feed(&mut mac, [&b"pass"[..], bytes]);
    mac
}

/// Feeds every field into the MAC behind its length, so that no two different tokens are ever signed as the same bytes. Each length has
/// four bytes, so that an unbound token fits into one block of SHA-256.
fn cover(
    mut mac: Hmac<Sha256>,
    fields: &TokenFields,
    action: Option<&str>,
    subject: Option<&Subject<'_>>,
) -> Hmac<Sha256> {
    let mut feed = |field: &[u8]| {
        mac.update(&(field.len() as u32).to_be_bytes());
        mac.update(field);
    };
    feed(&[fields.flags]);
    feed(fields.id.as_bytes());
    feed(&fields.expires_at.to_be_bytes());
    feed(&fields.epoch);
    if let Some(action) = action {
        feed(action.as_bytes());
    }
    if let Some(subject) = subject {
        feed(&subject.to_bytes());
    }
    mac
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random;

    fn secret(letter: &str) -> Secret {
        Secret::new(letter.repeat(16)).unwrap()
    }

    fn mint(letter: &str) -> Mint {
        Mint::new([secret(letter)])
    }

    fn sign(mint: &Mint, bound: &Binding<'_>) -> String {
        mint.sign(random::id(), 1_800_000_000_000, [1; 8], bound).as_str().to_owned()
    }

    #[test]
    fn bound_token_is_valid_only_for_its_binding() {
        let mint = mint("a");
        let (pay, ship) = ("POST /pay", "POST /ship");
        let (alice, bob, anonymous) = (Subject::named("alice"), Subject::named("bob"), Subject::anonymous());

        let free = sign(&mint, &Binding::none());
        assert!(
            mint.verify(&Credential::of(&free), pay, &alice).is_ok()
                && mint.verify(&Credential::of(&free), ship, &anonymous).is_ok()
        );

        let to_pay = sign(&mint, &Binding::none().action(pay));
        assert!(
            mint.verify(&Credential::of(&to_pay), pay, &alice).is_ok()
                && mint.verify(&Credential::of(&to_pay), pay, &bob).is_ok()
        );
        assert_eq!(mint.verify(&Credential::of(&to_pay), ship, &alice), Err(Code::TokenInvalid));

        let to_alice = sign(&mint, &Binding::none().subject(alice.clone()));
        assert!(mint.verify(&Credential::of(&to_alice), ship, &alice).is_ok());
        assert_eq!(mint.verify(&Credential::of(&to_alice), ship, &bob), Err(Code::TokenInvalid));
        assert_eq!(mint.verify(&Credential::of(&to_alice), ship, &anonymous), Err(Code::TokenInvalid));
    }

    #[test]
    fn characters_cannot_move_between_fields() {
        let mint = mint("a");
        let token = sign(&mint, &Binding::none().action("ab").subject(Subject::named("c")));
        assert!(mint.verify(&Credential::of(&token), "ab", &Subject::named("c")).is_ok());
        assert_eq!(mint.verify(&Credential::of(&token), "a", &Subject::named("bc")), Err(Code::TokenInvalid));
    }

    #[test]
    fn subject_named_like_an_address_is_not_that_address() {
        let mint = mint("a");
        let address = Subject::client_address([127, 0, 0, 1].into());
        let token = sign(&mint, &Binding::none().subject(address.clone()));
        assert!(mint.verify(&Credential::of(&token), "", &address).is_ok());
        assert_eq!(mint.verify(&Credential::of(&token), "", &Subject::named("127.0.0.1")), Err(Code::TokenInvalid));
    }

    #[test]
    fn former_secret_verifies_but_does_not_sign() {
        let (old, new) = (mint("a"), mint("b"));
        let both = Mint::new([secret("b"), secret("a")]);
        let anyone = Subject::anonymous();
        assert!(both.verify(&Credential::of(&sign(&old, &Binding::none())), "", &anyone).is_ok());
        assert!(new.verify(&Credential::of(&sign(&both, &Binding::none())), "", &anyone).is_ok());
        assert!(old.verify(&Credential::of(&sign(&both, &Binding::none())), "", &anyone).is_err());
    }

    #[test]
    fn one_flipped_bit_invalidates_the_token() {
        let mint = mint("a");
        let token = sign(&mint, &Binding::none().action("x"));
        for position in 0..token.len() {
            for bit in 0..8 {
                let mut bytes = token.clone().into_bytes();
                bytes[position] ^= 1 << bit;
                if let Ok(flipped) = String::from_utf8(bytes) {
                    assert!(
                        mint.verify(&Credential::of(&flipped), "x", &Subject::anonymous()).is_err(),
                        "byte {position}, bit {bit}"
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_not_a_valid_token(text in "\\PC*", tail in "[A-Za-z0-9_-]{66}") {
            let mint = mint("a");
            prop_assert!(mint.verify(&Credential::of(&text), "", &Subject::anonymous()).is_err());
            let shaped = format!("ow1_{tail}");
            prop_assert!(mint.verify(&Credential::of(&shaped), "", &Subject::anonymous()).is_err());
        }

        #[test]
        fn token_is_valid_only_for_its_action_and_subject(
            action in "\\PC{0,40}", subject in "\\PC{0,40}", other in "\\PC{0,40}",
        ) {
            let mint = mint("a");
            let who = Subject::named(subject.as_str());
            let token = sign(&mint, &Binding::none().action(&action).subject(who.clone()));
            prop_assert!(mint.verify(&Credential::of(&token), &action, &who).is_ok());
            prop_assert_eq!(mint.verify(&Credential::of(&token), &other, &who).is_ok(), other == action);
            prop_assert_eq!(mint.verify(&Credential::of(&token), &action, &Subject::named(other.as_str())).is_ok(), other == subject);
        }
    }
}
