package pebble

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Channels implements store.Channels.
func (s *Store) Channels(context.Context) ([]store.ChannelSettings, error) {
	all, err := readAll(s, spaceChannel, readChannel)
	if err != nil {
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
	b = binary.AppendUvarint(b, uint64(s.MaxInFlight))
	if s.FailureChannel != "" { // settings of earlier versions end here
		b = appendText(b, string(s.FailureChannel))
	}
	return b
}

func readChannel(v []byte, route string) (store.ChannelSettings, error) {
	r := reader{rest: v}
	r.layout()
	s := store.ChannelSettings{Route: postdate.Route(route), Paused: r.byte() == 1}
	if bits := r.take(8); bits != nil {
		s.MaxPerSecond = math.Float64frombits(binary.BigEndian.Uint64(bits))
	}
	s.MaxInFlight = int(r.uvarint())
	if len(r.rest) > 0 {
		s.FailureChannel = postdate.Channel(r.text())
	}
	return s, r.end()
}
