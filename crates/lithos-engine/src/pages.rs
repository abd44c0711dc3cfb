//! Which key/value pages belong to which slot.

/// Free pages of the pool that all slots share.
pub(crate) struct PagePool {
    free: Vec<u32>,
    tokens_per_page: usize,
}

impl PagePool {
    pub(crate) fn new(pages: usize, tokens_per_page: usize) -> Self {
        // Taken from the end: the first pages are used first.
        PagePool { free: (0..pages as u32).rev().collect(), tokens_per_page }
    }

    /// Extends a slot's pages to hold `tokens` tokens. Returns whether there were enough.
    pub(crate) fn grow(&mut self, pages: &mut Vec<u32>, tokens: usize) -> bool {
        let wanted = tokens.div_ceil(self.tokens_per_page);
        while pages.len() < wanted {
            match self.free.pop() {
                Some(page) => pages.push(page),
                None => return false,
            }
        }
        true
    }

    /// Takes a slot's pages back.
    pub(crate) fn release(&mut self, pages: &mut Vec<u32>) {
        self.free.extend(pages.drain(..).rev());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_handed_out_once_and_come_back() {
        let mut pool = PagePool::new(4, 64);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        assert!(pool.grow(&mut a, 65));
        assert!(pool.grow(&mut b, 128));
        assert_eq!((a.clone(), b.clone()), (vec![0, 1], vec![2, 3]));
        assert!(!pool.grow(&mut a, 129));
        pool.release(&mut b);
        assert!(pool.grow(&mut a, 129));
        assert_eq!(a, [0, 1, 2]);
    }
}
