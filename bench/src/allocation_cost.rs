//! Allocations per request.

use crate::statistics::Spread;

/// Allocations and requested bytes per request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AllocationCost {
    pub(crate) allocations: f64,
    pub(crate) bytes: f64,
}

impl AllocationCost {
    /// The median of several parts of a run. Returns `None` if there are none.
    pub(crate) fn median(parts: &[Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| Spread::of(parts.iter().map(figure)).map(|spread| spread.median);
        Some(Self { allocations: of(|part| part.allocations)?, bytes: of(|part| part.bytes)? })
    }

    /// The cost above that of a base.
    pub(crate) fn above(self, base: Self) -> Self {
        Self { allocations: self.allocations - base.allocations, bytes: self.bytes - base.bytes }
    }

    /// The cells of a table: allocations and bytes.
    pub(crate) fn cells(self) -> [String; 2] {
        [format!("{:.1}", self.allocations), format!("{:.0}", self.bytes)]
    }

    /// Like [`cells`](Self::cells), for a row that the others are compared with.
    pub(crate) fn base_cells(self) -> [String; 2] {
        self.cells().map(|cell| format!("{cell} in all"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_leaves_out_a_part_in_which_a_map_grew() {
        let parts = [8.0, 8.0, 90.0].map(|allocations| AllocationCost { allocations, bytes: allocations * 100.0 });
        assert_eq!(AllocationCost::median(&parts), Some(AllocationCost { allocations: 8.0, bytes: 800.0 }));
        assert_eq!(AllocationCost::median(&[]), None);
    }

    #[test]
    fn cells_show_the_difference_to_the_base() {
        let [base, token] =
            [(20.0, 3000.0), (27.5, 3512.0)].map(|(allocations, bytes)| AllocationCost { allocations, bytes });
        assert_eq!(token.above(base).cells(), ["7.5", "512"]);
        assert_eq!(base.base_cells(), ["20.0 in all", "3000 in all"]);
    }
}
