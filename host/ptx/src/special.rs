//! Special registers.

use crate::types::named;

named! {
    /// A special register that instructions can read.
    Special {
        TidX "%tid.x" TidY "%tid.y" TidZ "%tid.z"
        NtidX "%ntid.x" NtidY "%ntid.y" NtidZ "%ntid.z"
        CtaidX "%ctaid.x" CtaidY "%ctaid.y" CtaidZ "%ctaid.z"
        NctaidX "%nctaid.x" NctaidY "%nctaid.y" NctaidZ "%nctaid.z"
        Laneid "%laneid" Warpid "%warpid" Nwarpid "%nwarpid"
        LanemaskEq "%lanemask_eq" LanemaskLt "%lanemask_lt" LanemaskLe "%lanemask_le"
        LanemaskGt "%lanemask_gt" LanemaskGe "%lanemask_ge"
        DynamicSharedSize "%dynamic_smem_size" TotalSharedSize "%total_smem_size"
        WarpSize "WARP_SZ"
        Clock "%clock" ClockHigh "%clock_hi" Clock64 "%clock64"
        Globaltimer "%globaltimer" GlobaltimerLow "%globaltimer_lo"
        GlobaltimerHigh "%globaltimer_hi"
        Smid "%smid" Nsmid "%nsmid" Gridid "%gridid"
        ClusterCtaidX "%cluster_ctaid.x" ClusterCtaidY "%cluster_ctaid.y"
        ClusterCtaidZ "%cluster_ctaid.z" ClusterCtarank "%cluster_ctarank"
        ClusterNctaidX "%cluster_nctaid.x" ClusterNctaidY "%cluster_nctaid.y"
        ClusterNctaidZ "%cluster_nctaid.z" ClusterNctarank "%cluster_nctarank"
        ClusteridX "%clusterid.x" ClusteridY "%clusterid.y" ClusteridZ "%clusterid.z"
        NclusteridX "%nclusterid.x" NclusteridY "%nclusterid.y" NclusteridZ "%nclusterid.z"
        IsExplicitCluster "%is_explicit_cluster"
        Envreg1 "%envreg1" Envreg2 "%envreg2"
    }
}

/// The kind of information that a special register gives a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The thread's place in the launch, or the launch's shape.
    Shape,
    /// Time, or where on the device the thread runs. Another run may read another value.
    Clock,
    /// A thread block cluster, or the driver's private values.
    Refused,
}

impl Special {
    /// Returns what it tells a kernel.
    pub fn told(self) -> Told {
        match self {
            Self::Clock
            | Self::ClockHigh
            | Self::Clock64
            | Self::Globaltimer
            | Self::GlobaltimerLow
            | Self::GlobaltimerHigh
            | Self::Smid
            | Self::Nsmid
            | Self::Gridid
            | Self::Warpid
            | Self::Nwarpid => Told::Clock,
            Self::Envreg1 | Self::Envreg2 => Told::Refused,
            special if special >= Self::ClusterCtaidX => Told::Refused,
            _ => Told::Shape,
        }
    }
}
