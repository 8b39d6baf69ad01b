package market

import (
	"cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/market/query"
)

// fieldValue reads the value of a field. Exactly one function is set, depending on the kind of the field.
type fieldValue struct {
	text func(*facts) string                  // Text, Model, Version and Set; "" = unknown
	num  func(*facts) (v float64, known bool) // Number, Price and Bool
	who  func(*identity) string               // Identity
}

// fieldValues are the readers of query.Fields, by Field.Index.
var fieldValues = byField(map[string]fieldValue{
	"id":                 {who: func(w *identity) string { return w.offer.String() }},
	"host_id":            {who: func(w *identity) string { return w.host.String() }},
	"host_name":          {who: func(w *identity) string { return w.name }},
	"gpu_model":          {text: func(f *facts) string { return f.model }},
	"gpu_arch":           {text: func(f *facts) string { return f.arch }},
	"gpu_vendor":         {text: func(f *facts) string { return f.vendor }},
	"kind":               {text: func(f *facts) string { return f.kind }},
	"gpus_free":          {num: known(func(f *facts) int { return f.free })},
	"gpus_total":         {num: known(func(f *facts) int { return f.total })},
	"vram_gb":            {num: known(func(f *facts) int64 { return f.vramGB })},
	"compute_cap":        {text: func(f *facts) string { return f.computeCap }},
	"cuda_max":           {text: func(f *facts) string { return f.cudaMax }},
	"rocm_max":           {text: func(f *facts) string { return f.rocmMax }},
	"driver":             {text: func(f *facts) string { return f.driver }},
	"display":            {num: flag(func(f *facts) bool { return f.display })},
	"nvlink":             {num: flag(func(f *facts) bool { return f.nvlink })},
	"nvlink_gbps":        {num: known(func(f *facts) float64 { return f.nvlinkGbps })},
	"power_limit_w":      {num: positive(func(f *facts) int64 { return f.powerLimitW })},
	"power_default_w":    {num: positive(func(f *facts) int64 { return f.powerDefaultW })},
	"pcie_gen":           {num: known(func(f *facts) int { return f.pcieGen })},
	"pcie_measured":      {num: flag(func(f *facts) bool { return f.pcieMeasured })},
	"cpu_cores":          {num: known(func(f *facts) int { return f.cpuCores })},
	"ram_gb":             {num: known(func(f *facts) int64 { return gibibytes(f.ramMB) })},
	"disk_gb":            {num: known(func(f *facts) int64 { return f.diskFreeGB })},
	"scratch_gb":         {num: known(func(f *facts) int64 { return f.scratchFreeGB })},
	"disk_limited":       {num: flag(func(f *facts) bool { return f.diskLimited })},
	"runtime":            {text: func(f *facts) string { return f.runtimes }},
	"shared":             {text: func(f *facts) string { return f.shared }},
	"region":             {text: func(f *facts) string { return f.region }},
	"fabric":             {text: func(f *facts) string { return f.fabricName }},
	"busbw_gbps":         {num: measured(func(f *facts) maybe { return f.busbwGbps })},
	"rdma_gbps":          {num: known(func(f *facts) float64 { return f.rdmaGbps })},
	"rdma_isolation":     {text: func(f *facts) string { return f.rdmaIsolation() }},
	"busbw_rdma":         {num: measured(func(f *facts) maybe { return f.busbwRDMA })},
	"busbw_nvlink":       {num: positive(func(f *facts) float64 { return f.busbwNVLink })},
	"net_up_mbps":        {num: measured(func(f *facts) maybe { return f.netUpMbps })},
	"net_down_mbps":      {num: measured(func(f *facts) maybe { return f.netDownMbps })},
	"reliability":        {num: measured(func(f *facts) maybe { return f.reliability })},
	"verified":           {num: flag(func(f *facts) bool { return f.verified })},
	"price_per_gpu_hour": {num: known(func(f *facts) int64 { return int64(f.price) })},
	"min_gpus":           {num: known(func(f *facts) int { return f.minGPUs })},
	"max_duration":       {num: known(func(f *facts) float64 { return f.longest() })},
	"simulated":          {num: flag(func(f *facts) bool { return f.simulated })},
	"multi_node":         {num: flag(func(f *facts) bool { return f.multiNode })},
})

// byField returns the values in the order of query.Fields. It panics if one is missing or unknown, which is a
// programming error.
func byField(values map[string]fieldValue) []fieldValue {
	if len(values) != len(query.Fields) {
		panic("market: the values of an offer's fields are not those of package query")
	}
	out := make([]fieldValue, len(query.Fields))
	for i := range query.Fields {
		f := &query.Fields[i]
		v, ok := values[f.Name]
		if !ok || (v.num != nil) != f.IsNumber() || (v.who != nil) != (f.Kind == query.Identity) {
			panic("market: no value, or one of another kind, for the field " + f.Name)
		}
		out[i] = v
	}
	return out
}

// rdmaIsolation is what keeps the tenants of the offer's fabric apart; "" without RDMA.
func (f *facts) rdmaIsolation() string {
	if f.rdmaGbps == 0 || f.fabric.IsZero() {
		return ""
	}
	return cmp.Or(f.isolation, agentapi.IsolationSole)
}

// Text implements query.Row. Facts have the values of all fields except those of kind query.Identity.
func (f *facts) Text(of *query.Field) string { return fieldValues[of.Index].text(f) }

// Number implements query.Row.
func (f *facts) Number(of *query.Field) (float64, bool) { return fieldValues[of.Index].num(f) }

// Words implements query.Row. The GPU model is the only field that is compared by words.
func (f *facts) Words(*query.Field) []string { return f.modelWords.list }

// Text implements query.Row. An identity has the values of only the fields of kind query.Identity.
func (w *identity) Text(of *query.Field) string { return fieldValues[of.Index].who(w) }

// Number implements query.Row.
func (w *identity) Number(*query.Field) (float64, bool) { return 0, false }

// Words implements query.Row.
func (w *identity) Words(*query.Field) []string { return nil }

func known[N int | int64 | float64](get func(*facts) N) func(*facts) (float64, bool) {
	return func(f *facts) (float64, bool) { return float64(get(f)), true }
}

func measured(get func(*facts) maybe) func(*facts) (float64, bool) {
	return func(f *facts) (float64, bool) { m := get(f); return m.v, m.known }
}

// positive reads a number for which 0 means unknown.
func positive[N int64 | float64](get func(*facts) N) func(*facts) (float64, bool) {
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
