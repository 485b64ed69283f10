package poller

import (
	"maps"
	"slices"
)

// claimCall is the number of the claims that are under way, for tests with one such call.
func (m *Machine) claimCall() uint64 { return slices.Max(slices.Collect(maps.Keys(m.claimings))) }

// settleCall is the same for settlements.
func (m *Machine) settleCall() uint64 { return slices.Max(slices.Collect(maps.Keys(m.settlings))) }
