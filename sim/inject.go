package sim

// injection makes one call of a store or a broker fail: the k-th.
type injection struct {
	k   int
	how how
}

func (x *injection) fate(k int) (how, bool) {
	if x == nil || x.k != k {
		return wellDone, false
	}
	return x.how, true
}
