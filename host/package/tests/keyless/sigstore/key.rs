//! Keys of ECDSA on P-256.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

use super::der::der;
use super::sha256;

pub(crate) struct Key(EcdsaKeyPair);

impl Key {
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let secret = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, secret.as_ref(), &random).unwrap())
    }

    /// The SubjectPublicKeyInfo.
    pub(crate) fn public(&self) -> Vec<u8> {
        let curve = hex::decode("301306072a8648ce3d020106082a8648ce3d030107").unwrap();
        let point = [&[0][..], self.0.public_key().as_ref()].concat();
        der(0x30, &[curve, der(3, &point)].concat())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.0.sign(&SystemRandom::new(), message).unwrap();
        signature.as_ref().to_vec()
    }

    pub(crate) fn id(&self) -> [u8; 32] {
        sha256(&self.public())
    }
}
