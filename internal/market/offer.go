package market

import (
	"context"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Offer is what a host sells now: one model on one host. A nil field is not known.
type Offer struct {
	ID              id.Offer    `json:"id"`
	HostID          id.Host     `json:"host_id"`
	HostName        string      `json:"host_name"`
	GPUModel        string      `json:"gpu_model"`
	GPUArch         string      `json:"gpu_arch"`
	GPUsFree        int         `json:"gpus_free"`
	GPUsTotal       int         `json:"gpus_total"`
	VRAMGB          int64       `json:"vram_gb"`
	ComputeCap      string      `json:"compute_cap"`
	CUDAMax         string      `json:"cuda_max"`
	Driver          string      `json:"driver"`
	NVLink          bool        `json:"nvlink"`
	NVLinkGbps      float64     `json:"nvlink_gbps"`
	PCIeGen         int         `json:"pcie_gen"`
	CPUCores        int         `json:"cpu_cores"` // of the host
	RAMGB           int64       `json:"ram_gb"`    // of the host
	DiskGB          int64       `json:"disk_gb"`   // free
	Region          string      `json:"region"`
	Fabric          *string     `json:"fabric"`
	BusbwGbps       *float64    `json:"busbw_gbps"`
	NetUpMbps       *float64    `json:"net_up_mbps"`
	NetDownMbps     *float64    `json:"net_down_mbps"`
	Reliability     *float64    `json:"reliability"` // 0 to 1
	Verified        bool        `json:"verified"`
	PricePerGPUHour money.Micro `json:"price_per_gpu_hour"`
	PricePerGPUSec  money.Nano  `json:"price_per_gpu_second"` // for display
	MinGPUs         int         `json:"min_gpus"`
	MaxDuration     *int64      `json:"max_duration"` // seconds; nil = no limit
	Simulated       bool        `json:"simulated"`
	MultiNode       bool        `json:"multi_node"`
}

// OfferSearch is one page of a search.
type OfferSearch struct {
	Query string // see ParseQuery
	Sort  string // a field, "-" before it for descending; "" = price_per_gpu_hour
	Limit int    // 1 to 200; 0 = 50
	After string // Next of the page before
}

// OfferPage is the answer to a search. Only offers with at least one free GPU are listed.
type OfferPage struct {
	Items []Offer `json:"items"`
	Next  *string `json:"next"`
	// Of all matches, not only this page.
	Total    int `json:"total"`
	GPUsFree int `json:"gpus_free"`
	Hosts    int `json:"hosts"`
	Fabrics  int `json:"fabrics"`
	// Explain says how many hosts each term of the query excluded.
	Explain []Exclusion `json:"explain"`
}

// SearchOffers lists what can be rented now. Faults: Invalid, naming the position, for a bad query, sort or cursor.
func (m *Market) SearchOffers(ctx context.Context, s OfferSearch) (OfferPage, error) {
	return OfferPage{}, fault.New(fault.Unavailable, "offers are not served yet")
}

// Terms are what an operator sets on an offer. A nil field stays as it is.
type Terms struct {
	Price       *money.Micro // per GPU-hour; see Unlist to take the offer off the market
	Unlist      bool
	MinGPUs     *int
	MaxDuration *int64 // seconds; 0 = no limit
}

// OwnOffer is an offer as its operator sees it.
type OwnOffer struct {
	ID           id.Offer     `json:"id"`
	HostID       id.Host      `json:"host_id"`
	GPUModel     string       `json:"gpu_model"`
	GPUs         int          `json:"gpus"`
	Price        *money.Micro `json:"price_per_gpu_hour"` // nil: not listed
	MinGPUs      int          `json:"min_gpus"`
	MaxDuration  *int64       `json:"max_duration"`
	HostSharePPM int          `json:"host_share_ppm"`
}

// SyncOffers keeps one offer per GPU model of the host, inside the transaction that recorded its inventory.
func (m *Market) SyncOffers(ctx context.Context, tx *db.Tx, host id.Host) error {
	return fault.New(fault.Unavailable, "offers are not kept yet")
}

// SetTerms changes price and terms of the host's offers, all of them or those of one model, and keeps the history of
// prices. Running leases keep what they were rented at. Faults: NotFound, Invalid.
func (m *Market) SetTerms(ctx context.Context, tx *db.Tx, org id.Org, user id.User, host id.Host, model string, t Terms) ([]OwnOffer, error) {
	return nil, fault.New(fault.Unavailable, "offers are not kept yet")
}

// HostOffers lists the offers of one host, listed or not.
func (m *Market) HostOffers(ctx context.Context, host id.Host) ([]OwnOffer, error) {
	return nil, fault.New(fault.Unavailable, "offers are not kept yet")
}
