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
	Name string
	Kind Kind
	// Index is the field's index in Fields.
	Index int
}

// IsNumber reports whether the field's values are numbers for Row.Number.
func (f *Field) IsNumber() bool { return f.Kind == Number || f.Kind == Price || f.Kind == Bool }

// Fields are the fields of an offer in the REST API, in the API's order.
var Fields = numbered([]Field{
	{Name: "id", Kind: Identity},
	{Name: "host_id", Kind: Identity},
	{Name: "host_name", Kind: Identity},
	{Name: "gpu_model", Kind: Model},
	{Name: "gpu_arch", Kind: Text},
	{Name: "gpus_free", Kind: Number},
	{Name: "gpus_total", Kind: Number},
	{Name: "vram_gb", Kind: Number},
	{Name: "compute_cap", Kind: Version},
	{Name: "cuda_max", Kind: Version},
	{Name: "driver", Kind: Version},
	{Name: "nvlink", Kind: Bool},
	{Name: "nvlink_gbps", Kind: Number},
	{Name: "power_limit_w", Kind: Number},
	{Name: "power_default_w", Kind: Number},
	{Name: "pcie_gen", Kind: Number},
	{Name: "cpu_cores", Kind: Number},
	{Name: "ram_gb", Kind: Number},
	{Name: "disk_gb", Kind: Number},
	{Name: "scratch_gb", Kind: Number},
	{Name: "disk_limited", Kind: Bool},
	{Name: "runtime", Kind: Set},
	{Name: "region", Kind: Text},
	{Name: "fabric", Kind: Text},
	{Name: "busbw_gbps", Kind: Number},
	{Name: "net_up_mbps", Kind: Number},
	{Name: "net_down_mbps", Kind: Number},
	{Name: "reliability", Kind: Number},
	{Name: "verified", Kind: Bool},
	{Name: "price_per_gpu_hour", Kind: Price},
	{Name: "min_gpus", Kind: Number},
	{Name: "max_duration", Kind: Number},
	{Name: "simulated", Kind: Bool},
	{Name: "multi_node", Kind: Bool},
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
		if like := text.Nearest(low, names); like != "" {
			return fmt.Sprintf("did you mean %s?", like)
		}
		for i := range names {
			if low != "" && (strings.Contains(names[i], low) || strings.Contains(low, names[i])) {
				return fmt.Sprintf("did you mean %s?", names[i])
			}
		}
		return "fields are " + strings.Join(names, ", ")
	}
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
