package radix

// after does what may have become necessary once a change is complete and its
// locks are given back.
func (x *Index) after() {
}
