package host

import (
	"testing"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Hosts of one measured fabric offer its figure; others what the slowest line gives one way, if every line is known.
func TestOffered(t *testing.T) {
	t.Parallel()
	rack, other := id.New[id.Fabric](), id.New[id.Fabric]()
	gbps := func(v float64) *float64 { return &v }
	line := func(up, down float64) dbq.OfferedNetworkRow {
		return dbq.OfferedNetworkRow{NetUpMbps: &up, NetDownMbps: &down}
	}
	in := func(f id.Fabric, busbw *float64, r dbq.OfferedNetworkRow) dbq.OfferedNetworkRow {
		r.FabricID, r.BusbwGbps = f, busbw
		return r
	}
	for name, c := range map[string]struct {
		rows []dbq.OfferedNetworkRow
		want float64
	}{
		"one host": {[]dbq.OfferedNetworkRow{in(rack, gbps(200), line(1000, 1000))}, 0},
		"one fabric": {[]dbq.OfferedNetworkRow{in(rack, gbps(200), line(1000, 1000)),
			in(rack, gbps(200), dbq.OfferedNetworkRow{})}, 200},
		"a fabric not measured": {[]dbq.OfferedNetworkRow{in(rack, nil, line(1000, 900)), in(rack, nil, line(800, 2000))},
			0.8},
		"two fabrics": {[]dbq.OfferedNetworkRow{in(rack, gbps(200), line(1000, 900)),
			in(other, gbps(100), line(3000, 2000))}, 0.9},
		"one of them in none":      {[]dbq.OfferedNetworkRow{in(rack, gbps(200), line(1000, 900)), line(500, 2000)}, 0.5},
		"none":                     {[]dbq.OfferedNetworkRow{line(1000, 900), line(900, 700), line(3000, 3000)}, 0.7},
		"a line is not known":      {[]dbq.OfferedNetworkRow{line(1000, 900), {}, line(100, 100)}, 0},
		"the first is not known":   {[]dbq.OfferedNetworkRow{{}, line(100, 100)}, 0},
		"one way of it is unknown": {[]dbq.OfferedNetworkRow{line(1000, 900), {NetUpMbps: gbps(5)}}, 0},
	} {
		if got := offered(c.rows); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
