package market

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fieldKind says how a field's values are read and compared.
type fieldKind int

const (
	kindText     fieldKind = iota // whole, case-insensitive
	kindModel                     // by whole words, case-insensitive
	kindNumber                    //
	kindPrice                     // decimal, compared exactly
	kindVersion                   // dotted numbers
	kindBool                      //
	kindSet                       // words, of which one is met; case-insensitive
	kindIdentity                  // names one host or offer; whole, case-insensitive
)

// field is one thing a query can ask about and a search can sort by.
type field struct {
	name string
	kind fieldKind
	text func(*facts) string                  // text, model, version and set; "" = not known
	num  func(*facts) (v float64, known bool) // number, price and bool
	who  func(*identity) string               // identity
}

// fields are those of the REST API's offer, in its order.
var fields = []field{
	{name: "id", kind: kindIdentity, who: func(w *identity) string { return w.offer.String() }},
	{name: "host_id", kind: kindIdentity, who: func(w *identity) string { return w.host.String() }},
	{name: "host_name", kind: kindIdentity, who: func(w *identity) string { return w.name }},
	{name: "gpu_model", kind: kindModel, text: func(f *facts) string { return f.model }},
	{name: "gpu_arch", kind: kindText, text: func(f *facts) string { return f.arch }},
	{name: "gpus_free", kind: kindNumber, num: known(func(f *facts) int { return f.free })},
	{name: "gpus_total", kind: kindNumber, num: known(func(f *facts) int { return f.total })},
	{name: "vram_gb", kind: kindNumber, num: known(func(f *facts) int64 { return f.vramGB })},
	{name: "compute_cap", kind: kindVersion, text: func(f *facts) string { return f.computeCap }},
	{name: "cuda_max", kind: kindVersion, text: func(f *facts) string { return f.cudaMax }},
	{name: "driver", kind: kindVersion, text: func(f *facts) string { return f.driver }},
	{name: "nvlink", kind: kindBool, num: flag(func(f *facts) bool { return f.nvlink })},
	{name: "nvlink_gbps", kind: kindNumber, num: known(func(f *facts) float64 { return f.nvlinkGbps })},
	{name: "power_limit_w", kind: kindNumber, num: positive(func(f *facts) int64 { return f.powerLimitW })},
	{name: "power_default_w", kind: kindNumber, num: positive(func(f *facts) int64 { return f.powerDefaultW })},
	{name: "pcie_gen", kind: kindNumber, num: known(func(f *facts) int { return f.pcieGen })},
	{name: "cpu_cores", kind: kindNumber, num: known(func(f *facts) int { return f.cpuCores })},
	{name: "ram_gb", kind: kindNumber, num: known(func(f *facts) int64 { return f.ramMB >> 10 })},
	{name: "disk_gb", kind: kindNumber, num: known(func(f *facts) int64 { return f.diskFreeGB })},
	{name: "scratch_gb", kind: kindNumber, num: known(func(f *facts) int64 { return f.scratchFreeGB })},
	{name: "disk_limited", kind: kindBool, num: flag(func(f *facts) bool { return f.diskLimited })},
	{name: "runtime", kind: kindSet, text: func(f *facts) string { return f.runtimes }},
	{name: "region", kind: kindText, text: func(f *facts) string { return f.region }},
	{name: "fabric", kind: kindText, text: func(f *facts) string { return f.fabricName }},
	{name: "busbw_gbps", kind: kindNumber, num: measured(func(f *facts) maybe { return f.busbwGbps })},
	{name: "net_up_mbps", kind: kindNumber, num: measured(func(f *facts) maybe { return f.netUpMbps })},
	{name: "net_down_mbps", kind: kindNumber, num: measured(func(f *facts) maybe { return f.netDownMbps })},
	{name: "reliability", kind: kindNumber, num: measured(func(f *facts) maybe { return f.reliability })},
	{name: "verified", kind: kindBool, num: flag(func(f *facts) bool { return f.verified })},
	{name: "price_per_gpu_hour", kind: kindPrice, num: known(func(f *facts) int64 { return int64(f.price) })},
	{name: "min_gpus", kind: kindNumber, num: known(func(f *facts) int { return f.minGPUs })},
	{name: "max_duration", kind: kindNumber, num: known(func(f *facts) float64 { return f.longest() })},
	{name: "simulated", kind: kindBool, num: flag(func(f *facts) bool { return f.simulated })},
	{name: "multi_node", kind: kindBool, num: flag(func(f *facts) bool { return f.multiNode })},
}

func known[N int | int64 | float64](get func(*facts) N) func(*facts) (float64, bool) {
	return func(f *facts) (float64, bool) { return float64(get(f)), true }
}

func measured(get func(*facts) maybe) func(*facts) (float64, bool) {
	return func(f *facts) (float64, bool) { m := get(f); return m.v, m.known }
}

// positive is a number that is not known when it is 0.
func positive(get func(*facts) int64) func(*facts) (float64, bool) {
	return func(f *facts) (float64, bool) { n := get(f); return float64(n), n > 0 }
}

func flag(get func(*facts) bool) func(*facts) (float64, bool) {
	return func(f *facts) (float64, bool) {
		if get(f) {
			return 1, true
		}
		return 0, true
	}
}

func fieldNamed(name string) *field {
	i := slices.IndexFunc(fields, func(f field) bool { return strings.EqualFold(f.name, name) })
	if i < 0 {
		return nil
	}
	return &fields[i]
}

// QueryFields are the names a query may use and a search may sort by.
func QueryFields() []string {
	out := make([]string, len(fields))
	for i := range fields {
		out[i] = fields[i].name
	}
	return out
}

// suggest helps with a field that does not exist.
func suggest(name string) string {
	switch low := strings.ToLower(name); low {
	case "and":
		return "terms are joined by spaces alone"
	case "or":
		return "for one of several values use in [a,b]"
	case "not":
		return "use != or notin"
	default:
		for _, f := range QueryFields() {
			if low != "" && (strings.Contains(f, low) || strings.Contains(low, f)) {
				return fmt.Sprintf("did you mean %s?", f)
			}
		}
		return "fields are " + strings.Join(QueryFields(), ", ")
	}
}

// compare orders an offer's value of the field against v. For text only equality means anything.
func (fl *field) compare(f *facts, who *identity, v *value) (c int, known bool) {
	switch fl.kind {
	case kindIdentity:
		if strings.EqualFold(fl.who(who), v.raw) {
			return 0, true
		}
		return 1, true
	case kindText:
		s := fl.text(f)
		if strings.EqualFold(s, v.raw) {
			return 0, s != ""
		}
		return 1, s != ""
	case kindSet:
		s := fl.text(f)
		if hasWord(s, v.text) {
			return 0, true
		}
		return 1, s != ""
	case kindModel:
		if hasWords(f.modelWords.list, v.words) {
			return 0, true
		}
		return 1, true
	case kindVersion:
		s := fl.text(f)
		return compareVersions(s, v.text), s != ""
	default:
		n, known := fl.num(f)
		return cmp.Compare(n, v.num), known
	}
}

// hasWord reports whether word is one of those in list, which are lower case and joined by spaces.
func hasWord(list, word string) bool {
	for w := range strings.FieldsSeq(list) {
		if w == word {
			return true
		}
	}
	return false
}

func isVersion(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if n, err := strconv.ParseUint(part, 10, 32); err != nil || n > 1e9 {
			return false
		}
	}
	return true
}

// compareVersions orders dotted numbers; missing parts are 0, so 12 = 12.0.
func compareVersions(a, b string) int {
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		if c := cmp.Compare(number(x), number(y)); c != 0 {
			return c
		}
	}
	return 0
}

// number is the leading digits of s.
func number(s string) (n uint64) {
	for i := 0; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		n = n*10 + uint64(s[i]-'0')
	}
	return n
}
