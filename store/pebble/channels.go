package pebble

import (
	"context"
	"encoding/binary"
	"math"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Channels implements store.Channels.
func (s *Store) Channels(context.Context) ([]store.ChannelSettings, error) {
	iter, err := s.db.NewIter(&lsm.IterOptions{LowerBound: []byte{spaceChannel}, UpperBound: []byte{spaceChannel + 1}})
	if err != nil {
		return nil, s.readError(err)
	}
	defer iter.Close()
	var all []store.ChannelSettings
	for ok := iter.First(); ok; ok = iter.Next() {
		settings, err := readChannel(iter.Value(), postdate.Route(iter.Key()[1:]))
		if err != nil {
			return nil, s.readError(err)
		}
		all = append(all, settings)
	}
	if err := iter.Error(); err != nil {
		return nil, s.readError(err)
	}
	return all, s.awaitSynced()
}

// SetChannel implements store.Channels.
func (s *Store) SetChannel(_ context.Context, settings store.ChannelSettings) error {
	key := append([]byte{spaceChannel}, settings.Route...)
	w := s.writer()
	if settings.None() {
		w.batch.Delete(key, nil)
	} else {
		w.batch.Set(key, appendChannel(nil, settings), nil)
	}
	w.apply()
	return w.sync()
}

func appendChannel(b []byte, s store.ChannelSettings) []byte {
	paused := byte(0)
	if s.Paused {
		paused = 1
	}
	b = append(b, layout, paused)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(s.MaxPerSecond))
	return binary.AppendUvarint(b, uint64(s.MaxInFlight))
}

func readChannel(v []byte, route postdate.Route) (store.ChannelSettings, error) {
	r := reader{rest: v}
	r.layout()
	s := store.ChannelSettings{Route: route, Paused: r.byte() == 1}
	if bits := r.take(8); bits != nil {
		s.MaxPerSecond = math.Float64frombits(binary.BigEndian.Uint64(bits))
	}
	s.MaxInFlight = int(r.uvarint())
	return s, r.end()
}
