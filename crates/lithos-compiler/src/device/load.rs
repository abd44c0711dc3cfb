//! Weights of a checkpoint into the places of a program.

use std::collections::HashMap;
use std::ops::Range;

use lithos_format::{Checkpoint, Encoding, FormatError, Tensor};
use lithos_graph::{Graph, Rotary, StoredWeight, ValueId};
use thiserror::Error;

use super::lanes::LaneLayout;
use super::places::{WeightPlaces, rotary_bytes};
use crate::layout::WeightSource;

/// Why weights could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A tensor is missing.
    #[error("tensor `{0}` is missing")]
    Missing(String),
}

/// A stored weight with its rows in the order of the graph's value.
struct Ordered<'a>(&'a StoredWeight<'a>);

impl WeightSource for Ordered<'_> {
    fn cols(&self) -> usize {
        self.0.columns()
    }

    fn encoding(&self) -> Encoding {
        self.0.matrices()[0].encoding()
    }

    fn tensor_scale(&self) -> f32 {
        self.0.tensor_scale(0)
    }

    fn unpack_codes(&self, row: usize, out: &mut [u8]) {
        let (matrix, row) = self.0.row(row);
        matrix.unpack_codes(row, out);
    }

    fn unpack_scales(&self, row: usize, out: &mut [u32]) {
        let (matrix, row) = self.0.row(row);
        matrix.unpack_scales(row, out);
    }

    fn unpack_biases(&self, row: usize, out: &mut [u32]) {
        let (matrix, row) = self.0.row(row);
        matrix.unpack_biases(row, out);
    }
}

/// All weights of a program in pieces that can be packed one by one, by many threads.
#[derive(Debug)]
pub struct WeightPieces<'a> {
    matrices: Vec<PlacedMatrix<'a>>,
    pieces: Vec<Piece<'a>>,
    factors: HashMap<ValueId, f32>,
    largest: usize,
}

/// A stored matrix and where it goes.
#[derive(Debug)]
struct PlacedMatrix<'a> {
    stored: StoredWeight<'a>,
    layout: LaneLayout,
    place: usize,
}

#[derive(Debug)]
enum Piece<'a> {
    /// Some tiles of a matrix, by its index.
    Tiles { matrix: usize, tiles: Range<usize> },
    /// A small array.
    Array { tensor: Tensor<'a>, elements: usize, place: usize },
    /// Factors of experts' matrices, of the matrix with this index.
    Factors { matrix: usize, place: usize },
    /// A rotation's frequencies, and the factor of what turns.
    Rotary { rotary: &'a Rotary, place: usize },
}

/// Part of a packed piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedPart {
    /// Offset in the memory that the piece was packed into.
    pub at: usize,
    /// Bytes.
    pub bytes: usize,
    /// Offset in the buffer of weights.
    pub place: usize,
}

impl WeightPieces<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes of the largest piece.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// The factor of each matrix, but those of experts, which lie among the weights.
    pub fn factors(&self) -> &HashMap<ValueId, f32> {
        &self.factors
    }

    /// Packs piece `index` into the beginning of `out`, which holds [`WeightPieces::largest`] bytes of anything, and says where
    /// its parts go. Bytes of the buffer of weights that no part covers are zero.
    ///
    /// # Errors
    /// [`LoadError`] names the tensor.
    pub fn pack(&self, index: usize, out: &mut [u8]) -> Result<Vec<PackedPart>, LoadError> {
        match &self.pieces[index] {
            Piece::Tiles { matrix, tiles } => {
                Ok(self.matrices[*matrix].pack_tiles(tiles.clone(), out))
            }
            Piece::Array { tensor, elements, place } => {
                let bytes = elements * 4;
                write_floats(&mut out[..bytes], &tensor.to_f32()?);
                Ok(vec![PackedPart { at: 0, bytes, place: *place }])
            }
            Piece::Factors { matrix, place } => {
                let stored = &self.matrices[*matrix].stored;
                let factors: Vec<f32> =
                    (0..stored.experts()).map(|expert| stored.tensor_scale(expert)).collect();
                let bytes = factors.len() * 4;
                write_floats(&mut out[..bytes], &factors);
                Ok(vec![PackedPart { at: 0, bytes, place: *place }])
            }
            Piece::Rotary { rotary, place } => {
                let frequencies = rotary.frequencies().into_iter();
                let floats: Vec<f32> = frequencies
                    .map(|frequency| frequency as f32)
                    .chain([rotary.magnitude()])
                    .collect();
                let bytes = floats.len() * 4;
                write_floats(&mut out[..bytes], &floats);
                Ok(vec![PackedPart { at: 0, bytes, place: *place }])
            }
        }
    }
}

impl PlacedMatrix<'_> {
    fn pack_tiles(&self, tiles: Range<usize>, out: &mut [u8]) -> Vec<PackedPart> {
        let tile_bytes = self.layout.tile_bytes();
        let [codes, scales, biases] = tile_bytes.map(|bytes| bytes * tiles.len());
        let out = &mut out[..codes + scales + biases];
        out.fill(0);
        let (codes_out, planes) = out.split_at_mut(codes);
        let (scales_out, biases_out) = planes.split_at_mut(scales);
        let source = Ordered(&self.stored);
        self.layout.pack_tiles(&source, tiles.clone(), [codes_out, scales_out, biases_out]);
        let starts =
            [0, self.layout.code_bytes(), self.layout.code_bytes() + self.layout.scale_bytes()];
        let (mut parts, mut at) = (Vec::new(), 0);
        for (start, tile) in starts.into_iter().zip(tile_bytes) {
            let bytes = tile * tiles.len();
            if bytes > 0 {
                parts.push(PackedPart {
                    at,
                    bytes,
                    place: self.place + start + tile * tiles.start,
                });
            }
            at += bytes;
        }
        parts
    }
}

impl WeightPlaces {
    /// The weights in pieces of about `most` bytes, in the order of their places.
    ///
    /// # Errors
    /// [`LoadError`] names the tensor.
    pub fn pieces<'a>(
        &'a self,
        checkpoint: &'a Checkpoint,
        graph: &'a Graph,
        most: usize,
    ) -> Result<WeightPieces<'a>, LoadError> {
        let mut all = WeightPieces {
            matrices: Vec::new(),
            pieces: Vec::new(),
            factors: HashMap::new(),
            largest: 0,
        };
        let mut placed: Vec<_> = self.matrices.iter().collect();
        placed.sort_by_key(|(_, (place, _))| *place);
        for (id, (place, layout)) in placed {
            let Some(stored) = StoredWeight::open(checkpoint, graph.value(*id))? else { continue };
            match self.expert_factors.get(id) {
                Some((place, experts)) => {
                    all.largest = all.largest.max(experts * 4);
                    all.pieces.push(Piece::Factors { matrix: all.matrices.len(), place: *place });
                }
                None => {
                    all.factors.insert(*id, stored.tensor_scale(0));
                }
            }
            let tile: usize = layout.tile_bytes().iter().sum();
            let at_once = (most / tile.max(1)).max(1);
            all.largest = all.largest.max(tile * at_once.min(layout.tiles()));
            for first in (0..layout.tiles()).step_by(at_once) {
                let tiles = first..layout.tiles().min(first + at_once);
                all.pieces.push(Piece::Tiles { matrix: all.matrices.len(), tiles });
            }
            all.matrices.push(PlacedMatrix { stored, layout: *layout, place: *place });
        }
        for (id, (place, elements)) in &self.arrays {
            let Some(source) = graph.value(*id).weight() else { continue };
            let tensor = checkpoint
                .tensor(&source.tensor)
                .ok_or_else(|| LoadError::Missing(source.tensor.clone()))?;
            all.largest = all.largest.max(elements * 4);
            all.pieces.push(Piece::Array { tensor, elements: *elements, place: *place });
        }
        for (place, rotary) in &self.rotaries {
            all.largest = all.largest.max(rotary_bytes(rotary));
            all.pieces.push(Piece::Rotary { rotary, place: *place });
        }
        Ok(all)
    }

    /// Packs all weights into `out`, which holds [`WeightPlaces::bytes`] zeroed bytes, and returns the factor of each matrix.
    ///
    /// # Errors
    /// [`LoadError`] names the tensor.
    pub fn load(
        &self,
        checkpoint: &Checkpoint,
        graph: &Graph,
        out: &mut [u8],
    ) -> Result<HashMap<ValueId, f32>, LoadError> {
        /// Bytes that are packed at once.
        const PIECE: usize = 4 << 20;
        let pieces = self.pieces(checkpoint, graph, PIECE)?;
        let mut piece = vec![0; pieces.largest()];
        for index in 0..pieces.len() {
            for part in pieces.pack(index, &mut piece)? {
                out[part.place..][..part.bytes].copy_from_slice(&piece[part.at..][..part.bytes]);
            }
        }
        Ok(pieces.factors)
    }
}

fn write_floats(out: &mut [u8], values: &[f32]) {
    for (out, value) in out.chunks_exact_mut(4).zip(values) {
        out.copy_from_slice(&value.to_le_bytes());
    }
}
