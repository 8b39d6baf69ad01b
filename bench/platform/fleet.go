package platform

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// Fleet is what a synthetic fleet is made of: hosts of 8 GPUs that look connected, healthy, priced and idle.
type Fleet struct {
	Hosts     int
	Operators int // orgs that own them, alike many each
	Fabrics   int // 0 = none
}

// GPUsPerHost of every synthetic host.
const GPUsPerHost = 8

const model = "NVIDIA H100 80GB HBM3"

// Host is one synthetic host.
type Host struct {
	ID       id.Host
	Operator id.Org
	GPUs     []id.GPU
	Key      ed25519.PrivateKey // attestation key
}

// AddFleet writes a fleet.
func AddFleet(ctx context.Context, d *db.DB, f Fleet) ([]Host, error) {
	b := &pgx.Batch{}
	operators := make([]id.Org, f.Operators)
	for i := range operators {
		operators[i] = id.New[id.Org]()
		b.Queue("INSERT INTO org (id, name, personal) VALUES ($1, $2, true)", operators[i], fmt.Sprintf("operator %d", i))
	}
	fabrics := make([]id.Fabric, f.Fabrics)
	for i := range fabrics {
		fabrics[i] = id.New[id.Fabric]()
		b.Queue("INSERT INTO fabric (id, org_id, name) VALUES ($1, $2, $3)", fabrics[i], operators[i%len(operators)],
			fmt.Sprintf("fabric %d", i))
	}
	inventory, err := json.Marshal(inventory())
	if err != nil {
		return nil, err
	}
	hosts := make([]Host, f.Hosts)
	for i := range hosts {
		// Ed25519 keys from a seed: made in no time, and the same in every run.
		key := ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%032d", i)))
		h := Host{ID: id.New[id.Host](), Operator: operators[i%len(operators)], Key: key}
		var fabric id.Fabric
		if len(fabrics) > 0 {
			fabric = fabrics[i%len(fabrics)]
		}
		queueHost(b, &h, i, fabric, inventory)
		hosts[i] = h
	}
	return hosts, d.Pool.SendBatch(ctx, b).Close()
}

func queueHost(b *pgx.Batch, h *Host, n int, fabric id.Fabric, inventory []byte) {
	b.Queue(`INSERT INTO host (id, org_id, name, region, fabric_id, state, simulated, boot_id, cpu_cores, ram_mb, disk_gb,
		driver, cuda_max, inventory_at)
		VALUES ($1, $2, $3, $4, $5, 'active', true, $6, 192, 2000000, 20000, '550.54.15', '12.4', clock_timestamp())`,
		h.ID, h.Operator, fmt.Sprintf("h100-%04d", n), []string{"eu-west", "us-east", "ap-south"}[n%3], fabric, boot)
	// Hosts do not report in a benchmark: the last sync is in the future, so that no host falls silent.
	b.Queue(`INSERT INTO host_status (host_id, session, connected, connected_at, last_sync_at, full_report_at,
		agent_version, protocol)
		VALUES ($1, 1, true, clock_timestamp(), clock_timestamp() + interval '1 day', clock_timestamp(), 'bench',
		$2)`, h.ID, agentapi.Protocol)
	b.Queue("INSERT INTO host_inventory (host_id, inventory) VALUES ($1, $2)", h.ID, inventory)
	b.Queue("INSERT INTO host_key (host_id, link_key, attest_key) VALUES ($1, $2, $3)", h.ID, h.ID.String(),
		[]byte(h.Key.Public().(ed25519.PublicKey)))
	for i := range GPUsPerHost {
		g := id.New[id.GPU]()
		b.Queue(`INSERT INTO gpu (id, host_id, uuid, idx, model, arch, vram_mb, compute_cap, pcie_gen, nvlink, nvlink_gbps)
			VALUES ($1, $2, $3, $4, $5, 'Hopper', 81559, '9.0', 5, true, 3600)`, g, h.ID, "GPU-"+g.UUID().String(), i, model)
		h.GPUs = append(h.GPUs, g)
	}
	b.Queue("INSERT INTO offer (id, host_id, gpu_model, price) VALUES ($1, $2, $3, $4)", id.New[id.Offer](), h.ID, model,
		2_000_000+10_000*(n%50))
}

// boot is the boot id of every synthetic host.
const boot = "3f0c6a52-7c4e-4b58-9a7c-2d2f4f7f9c11"

// inventory is as large as that of a real host: what is read of it has to be found in it.
func inventory() agentapi.Inventory {
	inv := agentapi.Inventory{
		Protocol:     agentapi.Protocol,
		AgentVersion: "bench",
		BootID:       boot,
		OS:           "Debian GNU/Linux 12 (bookworm)",
		Arch:         "amd64",
		CPUCores:     192,
		RAMMB:        2_000_000,
		DiskGB:       20_000,
		Driver:       "550.54.15",
		CUDAMax:      "12.4",
		Simulated:    true,
		AttachMode:   "none",
		MultiNode:    true,
	}
	for i := range GPUsPerHost {
		g := agentapi.GPU{
			UUID:         "GPU-" + uuid.NewString(),
			Index:        i,
			PCIBus:       fmt.Sprintf("00000000:%02X:00.0", 16*i+7),
			Model:        model,
			Architecture: "Hopper",
			VRAMMB:       81559,
			ComputeCap:   "9.0",
			PCIeGenMax:   agentapi.Known(5),
			PCIeWidthMax: agentapi.Known(16),
			ECC:          agentapi.Known(true),
			Health:       "healthy",
		}
		row := make([]string, GPUsPerHost)
		for j := range row {
			row[j] = "NV18"
		}
		row[i] = "X"
		for l := range 18 {
			g.NVLinks = append(g.NVLinks, agentapi.NVLink{Link: l, Active: true, Version: 4})
		}
		inv.GPUs, inv.Topology = append(inv.GPUs, g), append(inv.Topology, row)
	}
	return inv
}
