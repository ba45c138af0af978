"""The plugin for QGIS: maps by geobgp, which runs in a Python of its own."""


def classFactory(iface):
    """Return the plugin, as QGIS asks for."""
    from .plugin import GeobgpPlugin

    return GeobgpPlugin(iface)
