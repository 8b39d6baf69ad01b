package market

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// halved returns a host with a whole A100 and one in two halves.
func halved() *Host {
	h := newHost("a", "NVIDIA A100-SXM4-80GB", 2, 2_000_000)
	h.CPUCores, h.RAMMB = 32, 131072
	h.GPUs[0].Kind, h.GPUs[1].Kind = agentapi.KindGPU, agentapi.KindGPU
	h.GPUs[1].Free = false // split: never sold whole
	for range 2 {
		slice := id.New[id.GPU]()
		h.GPUs = append(h.GPUs, HostGPU{GPU: GPU{slice, "MIG-" + slice.String(), 64 + len(h.GPUs)},
			Vendor: agentapi.NVIDIA, Kind: agentapi.KindSlice, Parent: h.GPUs[1].ID, Model: "A100 80GB MIG 3g.40gb",
			VRAMMB: h.GPUs[1].VRAMMB / 2, Free: true})
	}
	h.Offers = append(h.Offers,
		HostOffer{ID: id.New[id.Offer](), Model: "A100 80GB MIG 3g.40gb", Price: 900_000, MinGPUs: 1})
	return h
}

// A slice is rented by itself, with its part of the host's processors and memory, and whole GPUs keep theirs.
func TestASliceGetsItsShare(t *testing.T) {
	t.Parallel()
	h := halved()
	s := snapshotOf(h)
	place := func(gpus int, q string) (Placement, Explain) {
		parsed, err := query.Parse(q)
		if err != nil {
			t.Fatal(err)
		}
		return Place(s, Request{Nodes: 1, GPUs: gpus, Query: parsed})
	}
	for _, c := range []struct {
		q     string
		cores float64
		price money.Micro
	}{{"kind = slice", 8, 900_000}, {"kind != slice", 16, 2_000_000}} {
		p, why := place(1, c.q)
		if len(p.Nodes) != 1 || p.Nodes[0].Price != c.price || p.Nodes[0].CPUCores < c.cores-0.02 ||
			p.Nodes[0].CPUCores > c.cores || p.Nodes[0].RAMMB < h.sellableRAMMB()*int64(c.cores-1)/32 {
			t.Errorf("%s: %+v, %+v", c.q, p, why)
		}
	}
	p, why := place(2, "kind = slice")
	if len(p.Nodes) != 0 || !strings.Contains(fmt.Sprint(why), "one slice") {
		t.Errorf("two slices: %+v, %q", p, fmt.Sprint(why))
	}
	for range 2 { // both slices and the whole GPU can be taken together
		p, _ := place(1, "kind = slice")
		if len(p.Nodes) != 1 {
			t.Fatal("no slice left")
		}
		s.Take(p)
	}
	if p, _ := place(1, "kind != slice"); len(p.Nodes) != 1 {
		t.Error("the slices took the whole GPU's share")
	}
	if p, _ := place(1, "kind = slice"); len(p.Nodes) != 0 {
		t.Error("a third slice")
	}
}

// What is too large for the part of the message that a slice has gets a whole GPU, and a quote for a slice cannot be
// rented with it.
func TestPlace_ALargeSpecGetsAWholeGPU(t *testing.T) {
	t.Parallel()
	s := DefaultSpec()
	s.Image, s.Env = "busybox", map[string]string{"A": strings.Repeat("x", agentapi.SliceBytes)}
	request, err := s.Request(id.Org{})
	if err != nil {
		t.Fatal(err)
	}
	if p, why := Place(snapshotOf(halved()), request); len(p.Nodes) != 1 || p.Nodes[0].Slice {
		t.Errorf("%+v, %+v", p, why)
	}
	request.HostBytes = 0
	p, _ := Place(snapshotOf(halved()), request)
	if len(p.Nodes) != 1 || !p.Nodes[0].Slice {
		t.Fatalf("%+v", p)
	}
	if f := fault.From(p.Runs(s)); f == nil || f.Kind != fault.Invalid || f.Fields[0].Location != "env" ||
		!strings.Contains(f.Fields[0].Message, fmt.Sprint(agentapi.SliceBytes)) {
		t.Errorf("%+v", f)
	}
}

func TestAMDsOfferNamesItsOwnRuntime(t *testing.T) {
	t.Parallel()
	h := newHost("amd", "AMD Instinct MI300X", 2, 1_000_000)
	h.CUDAMax, h.Driver = "12.4", "550.54" // of an NVIDIA GPU beside them
	for i, rocm := range []string{"6.4", "6.10"} {
		h.GPUs[i].Vendor, h.GPUs[i].Kind, h.GPUs[i].ROCmMax = agentapi.AMD, agentapi.KindGPU, rocm
	}
	s := snapshotOf(h)
	for q, fits := range map[string]bool{
		"gpu_vendor = amd": true, "gpu_vendor = nvidia": false, "rocm_max >= 6.2": true, "rocm_max >= 6.5": false,
		"cuda_max >= 11": false, "kind = gpu": false, "gpu_model = MI300X": true, "gpu_model != H100": false,
		"": false, "gpu_vendor != nvidia": true, "host_name = amd": true,
	} {
		parsed, err := query.Parse(q)
		if err != nil {
			t.Fatal(err)
		}
		if p, _ := Place(s, Request{Nodes: 1, GPUs: 1, Query: parsed}); (len(p.Nodes) == 1) != fits {
			t.Errorf("%s: fits %t, want %t", q, !fits, fits)
		}
	}
	_, why := Place(s, Request{Nodes: 1, GPUs: 1})
	if !strings.Contains(fmt.Sprint(why), "not of AMD") {
		t.Errorf("the explanation does not say why: %v", why)
	}
	if v := s.hosts[h.ID].lots[0].offerView(); v.ROCmMax != "6.4" || v.CUDAMax != "" || v.GPUVendor != "amd" {
		t.Errorf("%+v", v)
	}
	if like := query.Suggest("gpu_vender"); !strings.Contains(like, "gpu_vendor") {
		t.Error(like)
	}
}

// GPUs that are reset together are rented together: the host is, whole.
func TestAHiveIsRentedWhole(t *testing.T) {
	t.Parallel()
	h := newHost("amd", "AMD Instinct MI300X", 8, 1_000_000)
	for i := range h.GPUs {
		h.GPUs[i].Vendor, h.GPUs[i].Kind, h.GPUs[i].Hive = agentapi.AMD, agentapi.KindGPU, "5c9d2e71a4b80617"
	}
	place := func(h *Host, gpus int) (Placement, Explain) {
		q, err := query.Parse("gpu_vendor = amd")
		if err != nil {
			t.Fatal(err)
		}
		return Place(snapshotOf(h), Request{Nodes: 1, GPUs: gpus, Query: q})
	}
	if p, why := place(h, 8); len(p.Nodes) != 1 || len(p.Nodes[0].GPUs) != 8 {
		t.Errorf("whole: %+v", why)
	}
	if p, why := place(h, 4); len(p.Nodes) != 0 || !strings.Contains(fmt.Sprint(why), "min_gpus <= 4") {
		t.Errorf("half: %+v, %v", p, why)
	}
	if v := snapshotOf(h).hosts[h.ID].lots[0].offerView(); v.MinGPUs != 8 {
		t.Errorf("the offer says %d", v.MinGPUs)
	}
	h.GPUs[5].Free = false // one is sick: its reset would end a lease of the others
	if p, _ := place(h, 7); len(p.Nodes) != 0 {
		t.Errorf("without a sick one: %+v", p)
	}
	for i := range h.GPUs {
		h.GPUs[i].Hive = ""
	}
	if p, why := place(h, 4); len(p.Nodes) != 1 {
		t.Errorf("without XGMI: %v", why)
	}
}

// A cluster has GPUs of one vendor, unless its query asks for those of several.
func TestAClusterDoesNotMixVendors(t *testing.T) {
	t.Parallel()
	amd, nvidia := newHost("amd", "AMD Radeon RX 7900 XTX", 1, 500_000), newHost("nvidia", "NVIDIA L40S", 1, 1_000_000)
	amd.GPUs[0].Vendor, nvidia.GPUs[0].Vendor = agentapi.AMD, agentapi.NVIDIA
	for q, fits := range map[string]bool{"vram_gb >= 1": false, "gpu_vendor = amd": false,
		"gpu_vendor in [nvidia,amd]": true} {
		parsed, err := query.Parse(q)
		if err != nil {
			t.Fatal(err)
		}
		if p, _ := Place(snapshotOf(amd, nvidia), Request{Nodes: 2, GPUs: 1, Query: parsed}); (len(p.Nodes) == 2) != fits {
			t.Errorf("%s: %+v", q, p.Nodes)
		}
	}
}
