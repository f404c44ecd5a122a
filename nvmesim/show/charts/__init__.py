"""Charts (Altair), readable in grey and without a network."""

from nvmesim.show.vega import import_jsonschema

import_jsonschema()
