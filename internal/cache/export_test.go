package cache

// Drain leaves no room, and has all caches give up what they hold.
func (b *Budget) Drain() {
	b.most = -1
	b.Fit()
}
