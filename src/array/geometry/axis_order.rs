//! The order in which the served file takes an array's axes: the slowest first.
//!
//! Uses nothing.

/// A permutation of an array's axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisOrder(Vec<usize>);

impl AxisOrder {
    /// Returns the axes in their own order or in reverse, with the axis `slowest` moved to the front.
    pub fn new(rank: usize, is_reversed: bool, slowest: Option<usize>) -> Self {
        let mut order: Vec<usize> = (0..rank).collect();
        if is_reversed {
            order.reverse();
        }
        let at = order.iter().position(|axis| Some(*axis) == slowest);
        if let Some(front) = at.and_then(|at| order.get_mut(..=at)) {
            front.rotate_right(1);
        }
        AxisOrder(order)
    }

    /// Returns whether the axes keep their order.
    pub fn is_identity(&self) -> bool {
        self.0.is_sorted()
    }

    /// Returns, for each served axis, its place among the array's own.
    pub fn axes(&self) -> &[usize] {
        &self.0
    }

    /// Returns what belongs to the array's own axes, in served order.
    pub fn served<T: Clone>(&self, own: &[T]) -> Vec<T> {
        if self.is_identity() {
            return own.to_vec();
        }
        self.0.iter().filter_map(|&axis| own.get(axis).cloned()).collect()
    }

    /// Returns what belongs to the served axes, in the order of the array's own.
    pub fn own<T: Clone>(&self, served: &[T]) -> Vec<T> {
        // Most arrays have this order, and this is called for each chunk that is located.
        if self.is_identity() {
            return served.to_vec();
        }
        let mut of_axes: Vec<(usize, &T)> = self.0.iter().copied().zip(served).collect();
        of_axes.sort_by_key(|(axis, _)| *axis);
        of_axes.into_iter().map(|(_, value)| value.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders() {
        let order = |is_reversed, slowest| AxisOrder::new(4, is_reversed, slowest).axes().to_vec();
        assert_eq!(order(false, None), [0, 1, 2, 3]);
        assert_eq!(order(true, None), [3, 2, 1, 0]);
        assert_eq!(order(false, Some(2)), [2, 0, 1, 3]);
        assert_eq!(order(true, Some(2)), [2, 3, 1, 0]);
        assert_eq!(order(true, Some(3)), [3, 2, 1, 0]);
        assert_eq!(order(false, Some(4)), [0, 1, 2, 3], "not an axis");
        assert!(AxisOrder::new(0, true, Some(0)).is_identity());
    }

    #[test]
    fn there_and_back() {
        for slowest in [None, Some(0), Some(1), Some(2)] {
            for is_reversed in [false, true] {
                let order = AxisOrder::new(3, is_reversed, slowest);
                assert_eq!(order.own(&order.served(&["a", "b", "c"])), ["a", "b", "c"]);
                assert_eq!(order.served(&[0, 1, 2]), order.axes());
            }
        }
    }
}
