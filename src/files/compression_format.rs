//! Compressed files: magic numbers and decompression programs.

/// Compression format of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressionFormat {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// xz.
    Xz,
    /// bzip2.
    Bzip2,
    /// LZ4.
    Lz4,
}

impl CompressionFormat {
    const ALL: [Self; 5] = [Self::Gzip, Self::Zstd, Self::Xz, Self::Bzip2, Self::Lz4];

    /// Detects the format by the first bytes of a file.
    pub fn detect(file: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|format| file.starts_with(format.magic()))
    }

    fn magic(self) -> &'static [u8] {
        match self {
            Self::Gzip => &[0x1f, 0x8b, 8],
            Self::Zstd => &[0x28, 0xb5, 0x2f, 0xfd],
            Self::Xz => b"\xfd7zXZ\0",
            Self::Bzip2 => b"BZh",
            Self::Lz4 => &[0x04, 0x22, 0x4d, 0x18],
        }
    }

    /// Returns the program that decompresses the format to standard output with `-dc`.
    pub fn program(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
            Self::Lz4 => "lz4",
        }
    }
}
