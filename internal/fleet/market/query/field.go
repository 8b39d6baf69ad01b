package query

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/text"
)

// Kind is how the values of a field are written and compared.
type Kind int

const (
	Text     Kind = iota // the whole text, case-insensitive
	Model                // by whole words, case-insensitive
	Number               // a decimal
	Price                // a decimal amount, compared exactly
	Version              // numbers separated by dots
	Bool                 // true or false
	Set                  // a set of words, one of which must match; case-insensitive
	Identity             // name or id of one host or offer: the whole text, case-insensitive
	Bare                 // of a word without a field: see bare
)

// Field is a field that queries can compare and searches can sort by.
type Field struct {
	Name    string
	Kind    Kind
	About   string // what it is, with its unit
	Example string // a term that uses it
	// Index is the field's index in Fields.
	Index int
}

// IsNumber reports whether the field's values are numbers for Row.Number.
func (f *Field) IsNumber() bool { return f.Kind == Number || f.Kind == Price || f.Kind == Bool }

// Fields are the fields of an offer in the REST API, in the API's order.
var Fields = numbered([]Field{
	{Name: "id", Kind: Identity, About: "the offer's id",
		Example: "id = of_01jd8zq6b2f7pvvm3k0a9rt4xw"},
	{Name: "host_id", Kind: Identity, About: "the host's id",
		Example: "host_id = host_01jd8zq6b2f7pvvm3k0a9rt4xw"},
	{Name: "host_name", Kind: Identity, About: "the host's name",
		Example: "host_name in [ams-r4-01,ams-r4-02]"},
	{Name: "gpu_model", Kind: Model, About: "words of the model's name",
		Example: "gpu_model = H100"},
	{Name: "gpu_arch", Kind: Text, About: "architecture",
		Example: "gpu_arch = hopper"},
	{Name: "gpu_vendor", Kind: Text,
		About:   "maker of the GPU: nvidia or amd; rentals whose query names no GPU get NVIDIA's",
		Example: "gpu_vendor = amd"},
	{Name: "kind", Kind: Text, About: "gpu, or slice for a part of a GPU (MIG)",
		Example: "kind = gpu"},
	{Name: "gpus_free", Kind: Number, About: "free GPUs of the offer",
		Example: "gpus_free >= 4"},
	{Name: "gpus_total", Kind: Number, About: "GPUs of the offer",
		Example: "gpus_total >= 8"},
	{Name: "vram_gb", Kind: Number, About: "memory of each GPU, in GB as its name counts them",
		Example: "vram_gb >= 80"},
	{Name: "compute_cap", Kind: Version, About: "CUDA compute capability",
		Example: "compute_cap >= 8.9"},
	{Name: "cuda_max", Kind: Version, About: "newest CUDA that the driver runs",
		Example: "cuda_max >= 12.4"},
	{Name: "rocm_max", Kind: Version, About: "newest ROCm that the driver runs",
		Example: "rocm_max >= 6.2"},
	{Name: "driver", Kind: Version, About: "version of the NVIDIA driver",
		Example: "driver >= 550"},
	{Name: "display", Kind: Bool, About: "whether a display uses a GPU, so the driver ends kernels that run for seconds",
		Example: "display = false"},
	{Name: "nvlink", Kind: Bool, About: "whether NVLink connects the GPUs",
		Example: "nvlink = true"},
	{Name: "nvlink_gbps", Kind: Number, About: "bandwidth of NVLink, in Gbit/s",
		Example: "nvlink_gbps >= 900"},
	{Name: "power_limit_w", Kind: Number, About: "watts that each GPU may draw",
		Example: "power_limit_w >= 350"},
	{Name: "power_default_w", Kind: Number, About: "watts that the GPU was made to draw",
		Example: "power_default_w >= 700"},
	{Name: "pcie_gen", Kind: Number, About: "generation of PCI Express, of the slowest GPU",
		Example: "pcie_gen >= 5"},
	{Name: "pcie_measured", Kind: Bool, About: "whether pcie_gen was measured under load, of all GPUs",
		Example: "pcie_measured = true"},
	{Name: "cpu_cores", Kind: Number, About: "processor cores of the host",
		Example: "cpu_cores >= 64"},
	{Name: "ram_gb", Kind: Number, About: "memory of the host, in GiB",
		Example: "ram_gb >= 512"},
	{Name: "disk_gb", Kind: Number, About: "free disk of the host, in GB",
		Example: "disk_gb >= 500"},
	{Name: "scratch_gb", Kind: Number, About: "free scratch of the host, in GB",
		Example: "scratch_gb >= 500"},
	{Name: "disk_limited", Kind: Bool, About: "whether the host enforces the disk per node",
		Example: "disk_limited = true"},
	{Name: "runtime", Kind: Set, About: "OCI runtime: runc, or runsc for gVisor",
		Example: "runtime = runsc"},
	{Name: "shared", Kind: Set, About: "shared file system that the host has",
		Example: "shared = lab-nfs"},
	{Name: "region", Kind: Text, About: "region",
		Example: "region in [eu-west,eu-north]"},
	{Name: "fabric", Kind: Text, About: "fast network that hosts share",
		Example: "fabric = rack-4"},
	{Name: "busbw_gbps", Kind: Number, About: "measured all-reduce bandwidth, in Gbit/s",
		Example: "busbw_gbps >= 100"},
	{Name: "rdma_gbps", Kind: Number, About: "RDMA ports that whole hosts come with, together in Gbit/s; 0: none",
		Example: "rdma_gbps >= 400"},
	{Name: "rdma_isolation", Kind: Text,
		About:   "what keeps tenants of the RDMA fabric apart: sole_tenant, one renter at a time",
		Example: "rdma_isolation = sole_tenant"},
	{Name: "busbw_rdma", Kind: Number, About: "all-reduce bandwidth over RDMA as NCCL measured it, in Gbit/s",
		Example: "busbw_rdma >= 1000"},
	{Name: "busbw_nvlink", Kind: Number,
		About:   "bandwidth of a ring of copies over NVLink between the host's GPUs, measured, in Gbit/s",
		Example: "busbw_nvlink >= 2000"},
	{Name: "net_up_mbps", Kind: Number, About: "measured upload, in Mbit/s",
		Example: "net_up_mbps >= 500"},
	{Name: "net_down_mbps", Kind: Number, About: "measured download, in Mbit/s",
		Example: "net_down_mbps >= 500"},
	{Name: "reliability", Kind: Number, About: "0 to 1; hosts without a record match no value",
		Example: "reliability >= 0.99"},
	{Name: "verified", Kind: Bool, About: "whether the platform has checked the GPUs",
		Example: "verified = true"},
	{Name: "price_per_gpu_hour", Kind: Price, About: "price per GPU-hour",
		Example: "price_per_gpu_hour <= 2.50"},
	{Name: "min_gpus", Kind: Number, About: "fewest GPUs that a node can rent",
		Example: "min_gpus <= 1"},
	{Name: "max_duration", Kind: Number, About: "longest rental, in seconds",
		Example: "max_duration >= 86400"},
	{Name: "simulated", Kind: Bool, About: "whether the GPUs are simulated",
		Example: "simulated = false"},
	{Name: "multi_node", Kind: Bool, About: "whether the host takes part in clusters of several nodes",
		Example: "multi_node = true"},
})

func numbered(all []Field) []Field {
	for i := range all {
		all[i].Index = i
	}
	return all
}

// bare is the field of a term that is only a word, such as h100. The word is searched in the model, the architecture,
// the region and the fabric. It is not in Fields: nothing can be sorted by it.
var bare = &Field{Name: "text", Kind: Bare, Index: -1}

var (
	modelField  = FieldNamed("gpu_model")
	placeFields = []*Field{FieldNamed("gpu_arch"), FieldNamed("region"), FieldNamed("fabric")}
)

// hasBare reports whether the words of v are consecutive words of the model, or v is part of an offer's architecture,
// region or fabric.
func hasBare(r Row, v *value) bool {
	return hasWords(r.Words(modelField), v.words) || slices.ContainsFunc(placeFields, func(f *Field) bool {
		return strings.Contains(strings.ToLower(r.Text(f)), v.text)
	})
}

// FieldNamed returns the field with this name, ignoring case, or nil if there is none.
func FieldNamed(name string) *Field {
	i := slices.IndexFunc(Fields, func(f Field) bool { return strings.EqualFold(f.Name, name) })
	if i < 0 {
		return nil
	}
	return &Fields[i]
}

// Suggest returns a hint for an error message about an unknown field.
func Suggest(name string) string {
	switch low := strings.ToLower(name); low {
	case "and":
		return "terms are joined by spaces alone"
	case "or":
		return "for one of several values use in [a,b]"
	case "not":
		return "use != or notin"
	default:
		names := make([]string, len(Fields))
		for i := range Fields {
			names[i] = Fields[i].Name
		}
		if like := NearestField(low); like != "" {
			return fmt.Sprintf("did you mean %s?", like)
		}
		return "fields are " + strings.Join(names, ", ")
	}
}

// NearestField returns the name of the field that a misspelt or shortened name probably means, or "".
func NearestField(name string) string {
	name = strings.ToLower(name)
	names := make([]string, len(Fields))
	for i := range Fields {
		names[i] = Fields[i].Name
	}
	if like := text.Nearest(name, names); like != "" {
		return like
	}
	within := func(n string) bool {
		return len(name) > 2 && strings.Contains(n, name) || len(n) > 2 && strings.Contains(name, n)
	}
	begins := func(n string) bool { return within(n) && strings.HasPrefix(n, name) }
	if i := cmp.Or(slices.IndexFunc(names, begins)+1, slices.IndexFunc(names, within)+1); i > 0 {
		return names[i-1]
	}
	return ""
}

// compare compares the row's value of the field with v. For text, c is 0 if the values are equal and 1 otherwise.
func (f *Field) compare(r Row, v *value) (c int, known bool) {
	switch f.Kind {
	case Identity:
		return differs(strings.EqualFold(r.Text(f), v.raw)), true
	case Text:
		s := r.Text(f)
		return differs(strings.EqualFold(s, v.raw)), s != ""
	case Set:
		s := r.Text(f)
		return differs(HasWord(s, v.text)), s != ""
	case Bare:
		return differs(hasBare(r, v)), true
	case Model:
		return differs(hasWords(r.Words(f), v.words)), true
	case Version:
		s := r.Text(f)
		return CompareVersions(s, v.text), s != ""
	default:
		n, known := r.Number(f)
		return cmp.Compare(n, v.num), known
	}
}

// differs returns 0 if two values are equal and 1 otherwise.
func differs(equal bool) int {
	if equal {
		return 0
	}
	return 1
}

// HasWord reports whether word is in list, a list of lower-case words separated by spaces.
func HasWord(list, word string) bool {
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

// CompareVersions compares dotted numbers. Missing parts are 0, so 12 equals 12.0.
func CompareVersions(a, b string) int {
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

// number returns the number that s begins with.
func number(s string) (n uint64) {
	for i := 0; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		n = n*10 + uint64(s[i]-'0')
	}
	return n
}
