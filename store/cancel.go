package store

import "github.com/postdate/postdate"

// Versioned names a message at a version; 0: at whichever it is.
type Versioned struct {
	Key     postdate.Key
	Version uint64
}

// AnyVersion names messages at whichever version they are.
func AnyVersion(keys []postdate.Key) []Versioned {
	some := make([]Versioned, len(keys))
	for i, key := range keys {
		some[i].Key = key
	}
	return some
}

// Check returns an error unless a message in that state is at the version.
func (v *Versioned) Check(st postdate.State) error {
	if v.Version != 0 && v.Version != st.Version {
		return ErrChanged(v.Key)
	}
	return nil
}
