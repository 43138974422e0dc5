"""Who answers: the programs behind the gateway, and the life and death of their processes."""
