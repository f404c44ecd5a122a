"""Why a measured server differs from its prediction."""
