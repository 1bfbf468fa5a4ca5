//! The certificates of the authority and of signers, which a log of certificates has seen.

use super::der::{MINUTES, YEARS, authority, counted, der, extension, name, purposes, signed, tbs};
use super::{CODE_SIGNING, Key, Plan, Sigstore, TIME, sha256};

impl Sigstore {
    pub(crate) fn root_certificate(&self) -> Vec<u8> {
        let name = name("root");
        let tbs = tbs(&name, YEARS, &name, &self.root, &[authority()]);
        signed(&tbs, &self.root)
    }

    pub(super) fn between_certificate(&self) -> Vec<u8> {
        let extensions = [authority(), purposes(CODE_SIGNING)];
        let tbs = tbs(
            &name("root"),
            YEARS,
            &name("between"),
            &self.between,
            &extensions,
        );
        signed(&tbs, &self.root)
    }

    pub(super) fn leaf_certificate(&self, plan: &Plan, key: &Key) -> Vec<u8> {
        let usage = extension(&[0x55, 0x1d, 0x0f], true, &[3, 2, 7, 0x80]);
        let names: Vec<_> = plan
            .names
            .iter()
            .flat_map(|(tag, name)| der(*tag, name.as_bytes()))
            .collect();
        let names = extension(&[0x55, 0x1d, 0x11], true, &der(0x30, &names));
        let mut extensions = vec![usage, purposes(plan.purpose), names];
        for (number, issuer) in &plan.issuers {
            let kind = [0x2b, 6, 1, 4, 1, 0x83, 0xbf, 0x30, 1, *number];
            let issuer = issuer.as_bytes().to_vec();
            let issuer = if *number == 1 {
                issuer
            } else {
                der(0x0c, &issuer)
            };
            extensions.push(extension(&kind, false, &issuer));
        }
        let (between, subject) = (name("between"), der(0x30, &[]));
        if plan.is_seen {
            let unstamped = tbs(&between, MINUTES, &subject, key, &extensions);
            let stamp = self.stamp(&unstamped);
            // Not the last one, so that extensions after it count.
            extensions.insert(2, stamp);
        }
        signed(
            &tbs(&between, MINUTES, &subject, key, &extensions),
            &self.between,
        )
    }

    /// The extension with the signature of the log of certificates.
    fn stamp(&self, unstamped: &[u8]) -> Vec<u8> {
        let time = (TIME * 1000).to_be_bytes();
        let issuer = sha256(&self.between.public());
        let length = u32::try_from(unstamped.len()).unwrap().to_be_bytes();
        let message = [
            &[0, 0],
            &time[..],
            &[0, 1],
            &issuer,
            &length[1..],
            unstamped,
            &[0, 0],
        ];
        let signature = self.certificate_log.sign(&message.concat());
        let id = self.certificate_log.id();
        let one = [&[0], &id[..], &time, &[0, 0, 4, 3], &counted(&signature)].concat();
        let list = counted(&counted(&one));
        let kind = [0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 2];
        extension(&kind, false, &der(4, &list))
    }
}
