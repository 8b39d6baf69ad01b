package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck/fakecuda"
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
)

// A host without RDMA or NCCL measures how fast its GPUs send to each other over NVLink before any lease: renters find
// it by that, and its operator sees which of its GPUs is the slowest.
func TestAHostsNVLinkIsMeasured(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	operator := p.as(t, p.OperatorToken)
	name := "nvlink-" + id.New[id.Host]().String()[5:13]
	h := p.newHost(t, name, "NVIDIA H100 80GB HBM3", 4)
	cuda := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := fakecuda.Build(cuda); err != nil {
		t.Fatal(err)
	}
	// What the third GPU sends to the fourth takes eight times as long as the others' 8 Gbit/s.
	if err := fakecuda.Save(cuda+".gpus", h.uuids, "slowlink "+h.uuids[2]+" "+h.uuids[3]); err != nil {
		t.Fatal(err)
	}
	h.env = append(h.env, "MUSTER_CUDA_LIBRARY="+cuda)
	began := time.Now()
	host := h.sells(t, operator, name, "")
	var offer client.Offer
	eventually(t, "the offer says what was measured", func() bool {
		page, err := operator.Offers.Search(t.Context(), client.OffersQuery{PageOf: client.PageOf{},
			Q: "busbw_nvlink > 0 host_name=" + name, Sort: ""})
		if err == nil && page.Total == 1 {
			offer = page.Items[0]
		}
		return err == nil && page.Total == 1
	})
	if offer.BusbwNVLink == nil || *offer.BusbwNVLink != 1 || offer.NVLinkGbps != 3600 {
		t.Errorf("the offer says %v of %v Gbit/s", offer.BusbwNVLink, offer.NVLinkGbps)
	}
	seen, err := operator.Hosts.Get(t.Context(), host)
	if err != nil || len(seen.NVLinkMeasured) != 1 || seen.NVLinkMeasured[0].SlowestGPU != 2 ||
		seen.NVLinkMeasured[0].At.Before(began) || seen.NVLinkMeasured[0].At.After(time.Now()) {
		t.Errorf("%v: the host says %+v", err, seen.NVLinkMeasured)
	}
}
