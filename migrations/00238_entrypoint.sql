-- +goose Up
-- Renting looks at one capability of a host's agent, whether it can replace an image's entry point: a change of the
-- capabilities is a change of the fleet (see 00010).
CREATE TRIGGER host_agent_inserted AFTER INSERT ON host_agent FOR EACH ROW EXECUTE FUNCTION note_host_of_row();
CREATE TRIGGER host_agent_noted AFTER UPDATE ON host_agent FOR EACH ROW
    WHEN (OLD.capabilities IS DISTINCT FROM NEW.capabilities) EXECUTE FUNCTION note_host_of_row();
