package pebble

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/postdate/postdate"
)

// Every insert asks whether its id is taken, and most often it is not. Bloom filters answer
// that from memory, with ten bits for each id. They cover the state space alone, because
// nothing else is asked for by a key that may not exist. Pebble's own Get does not use the
// filters of the lowest level, which holds almost everything, and would read a block of it each
// time. An iterator that uses them looks up a whole chunk instead.

// lookup reads states by key.
type lookup struct {
	iter *lsm.Iterator
	key  []byte
}

// state reads a message's state. The first call fixes the snapshot, so it must come after the
// locks are taken.
func (l *lookup) state(s *Store, key postdate.Key) (st state, found bool, err error) {
	if l.iter == nil {
		l.iter, err = s.db.NewIter(&lsm.IterOptions{
			LowerBound: []byte{spaceState}, UpperBound: []byte{spaceState + 1}, UseL6Filters: true,
		})
		if err != nil {
			return state{}, false, err
		}
	}
	l.key = stateKey(l.key[:0], key)
	if !l.iter.SeekPrefixGE(l.key) || !bytes.Equal(l.iter.Key(), l.key) {
		return state{}, false, l.iter.Error()
	}
	st, err = readState(l.iter.Value())
	return st, err == nil, err
}

// inOrder returns the numbers below n in the order of their keys, those with equal keys in
// their own order: lookups in that order read neighbours.
func inOrder(n int, keyOf func(i int) *postdate.Key) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := keyOf(i), keyOf(j)
		return cmp.Or(a.Bucket-b.Bucket, strings.Compare(a.Tenant, b.Tenant),
			strings.Compare(a.ScheduleID, b.ScheduleID))
	})
	return order
}

func (l *lookup) close() {
	if l.iter != nil {
		l.iter.Close()
	}
}

// stateFilter is a Bloom filter of which only states are members. It says of any other key that
// it may be there.
type stateFilter struct{ lsm.FilterPolicy }

var filterStates = stateFilter{bloom.FilterPolicy(10)}

func (f stateFilter) Name() string { return "postdate.states." + f.FilterPolicy.Name() }

func (f stateFilter) MayContain(kind lsm.FilterType, filter, key []byte) bool {
	return len(key) == 0 || key[0] != spaceState || f.FilterPolicy.MayContain(kind, filter, key)
}

func (f stateFilter) NewWriter(kind lsm.FilterType) lsm.FilterWriter {
	return stateFilterWriter{f.FilterPolicy.NewWriter(kind)}
}

type stateFilterWriter struct{ lsm.FilterWriter }

func (w stateFilterWriter) AddKey(key []byte) {
	if key[0] == spaceState {
		w.FilterWriter.AddKey(key)
	}
}
