package pebble

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/postdate/postdate/store"
)

// Tenants implements store.Tenants.
func (s *Store) Tenants(context.Context) ([]store.TenantSettings, error) {
	all, err := readAll(s, spaceTenant, readTenant)
	if err != nil {
		return nil, s.readError(err)
	}
	return all, s.awaitSynced()
}

// SetTenant implements store.Tenants.
func (s *Store) SetTenant(_ context.Context, settings store.TenantSettings) error {
	key := append([]byte{spaceTenant}, settings.Tenant...)
	w := s.writer()
	if settings.None() {
		w.batch.Delete(key, nil)
	} else {
		w.batch.Set(key, appendTenant(nil, &settings), nil)
	}
	w.apply()
	return w.sync()
}

// appendTenant writes for each field whether it is set, and its value.
func appendTenant(b []byte, s *store.TenantSettings) []byte {
	b = append(b, layout)
	for _, rate := range []*float64{s.RequestsPerSecond, s.MessagesPerSecond} {
		if b = append(b, set(rate != nil)); rate != nil {
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(*rate))
		}
	}
	for _, limit := range []*int64{s.PendingMax, s.BytesMax, s.ChannelsMax} {
		if b = append(b, set(limit != nil)); limit != nil {
			b = binary.AppendVarint(b, *limit)
		}
	}
	if b = append(b, set(s.Weight != nil)); s.Weight != nil {
		b = binary.AppendVarint(b, int64(*s.Weight))
	}
	return b
}

func set(there bool) byte {
	if there {
		return 1
	}
	return 0
}

func readTenant(v []byte, tenant string) (store.TenantSettings, error) {
	r := reader{rest: v}
	r.layout()
	s := store.TenantSettings{Tenant: tenant}
	for _, rate := range []**float64{&s.RequestsPerSecond, &s.MessagesPerSecond} {
		if r.byte() == 1 {
			*rate = new(float64)
			if bits := r.take(8); bits != nil {
				**rate = math.Float64frombits(binary.BigEndian.Uint64(bits))
			}
		}
	}
	for _, limit := range []**int64{&s.PendingMax, &s.BytesMax, &s.ChannelsMax} {
		if r.byte() == 1 {
			*limit = new(int64)
			**limit = r.varint()
		}
	}
	if r.byte() == 1 {
		s.Weight = new(int)
		*s.Weight = int(r.varint())
	}
	return s, r.end()
}
