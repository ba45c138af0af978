"""Options of the shell as parameters of Processing, and what is given for them as words of a command line."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from qgis.core import (
    QgsProcessing,
    QgsProcessingException,
    QgsProcessingParameterBoolean,
    QgsProcessingParameterCrs,
    QgsProcessingParameterDefinition,
    QgsProcessingParameterEnum,
    QgsProcessingParameterFeatureSource,
    QgsProcessingParameterField,
    QgsProcessingParameterFolderDestination,
    QgsProcessingParameterMultipleLayers,
    QgsProcessingParameterNumber,
    QgsProcessingParameterString,
)

from .layers import raster_file, vector_file

_SHAPES = {
    "point": QgsProcessing.SourceType.TypeVectorPoint,
    "line": QgsProcessing.SourceType.TypeVectorLine,
    "polygon": QgsProcessing.SourceType.TypeVectorPolygon,
}


class GivenValues:
    """What was given to one run of an algorithm, and where layers can be exported to."""

    def __init__(self, algorithm, parameters, context, feedback, scratch):
        self.algorithm, self.parameters, self.context = algorithm, parameters, context
        self.feedback, self.scratch = feedback, Path(scratch)

    def has(self, name):
        """Return whether there is anything for a parameter."""
        return self.parameters.get(name) not in (None, "", [])

    def text(self, name):
        """Return a parameter as text."""
        return self.algorithm.parameterAsString(self.parameters, name, self.context).strip()

    def layers(self, name):
        """Return the layers of a parameter that takes several."""
        return self.algorithm.parameterAsLayerList(self.parameters, name, self.context)


class Option:
    """One option of the shell: how it is asked for, and what words it becomes; as it is here, a line of text.

    Parameters
    ----------
    about : dict
        What the shell says of it.
    """

    def __init__(self, about):
        self.about = about
        self.name, self.flag, self.label = about["name"], about["flag"], about["label"]

    def definition(self):
        """Return the parameter, new for each algorithm."""
        parameter = self.make(self.name, self.label, not self.about["required"])
        parameter.setHelp(self.about["help"])
        return self.placed(parameter)

    def placed(self, parameter):
        """Return a parameter among the advanced ones, if it belongs there."""
        if self.about["advanced"]:
            parameter.setFlags(parameter.flags() | QgsProcessingParameterDefinition.Flag.FlagAdvanced)
        return parameter

    def make(self, name, label, optional):
        """Return the parameter itself."""
        return QgsProcessingParameterString(name, label, self.about["default"], optional=optional)

    def words(self, given):
        """Return words of the command line; none where nothing is given."""
        text = given.text(self.name) if given.has(self.name) else ""
        return self.each([text] if text and text != str(self.about["default"]) else [])

    def each(self, values):
        """Return the words for some values: an argument has no flag."""
        return [word for value in values for word in ((self.flag, value) if self.flag else (value,))]


class Several(Option):
    """Words or numbers, with spaces between."""

    def words(self, given):
        """Return the flag with each of them."""
        return self.each([word for word in re.split(r"[;\s]+", given.text(self.name)) if word])


class Terms(Option):
    """Words that may hold spaces, such as LEVEL=COLUMN, with semicolons between."""

    def words(self, given):
        """Return the flag with each of them."""
        return self.each([term.strip() for term in given.text(self.name).split(";") if term.strip()])


class PlacesOption(Terms):
    """Files, names of layers in the project, or another word; with LEVEL= before it if need be."""

    def words(self, given):
        """Return the flag with each of them, a layer as its file."""
        words = super().words(given)
        return [self.file(word, given) if n % 2 else word for n, word in enumerate(words)]

    def file(self, term, given):
        """Return a term with the file of the layer that it names."""
        level, equals, name = term.rpartition("=")
        project = given.context.project()
        layers = project.mapLayersByName(name) if project is not None else []
        if not layers:
            return term
        return f"{level}{equals}{vector_file(layers[0], layers[0], None, given, f'{self.name.lower()}-{level}')}"


class NumbersOption(Several):
    """Numbers, with spaces between."""

    def words(self, given):
        """Refuse what is no number, which may be a comma in its decimals."""
        words = super().words(given)
        for word in words[1::2]:
            try:
                float(word)
            except ValueError:
                raise QgsProcessingException(
                    f"{self.label}: {word!r} is no number. Write numbers with spaces between, and decimals with a "
                    "point: 0.3 1.5"
                ) from None
        return words


class Number(Option):
    """A number."""

    def make(self, name, label, optional):
        """Return a parameter with its range."""
        whole, real = QgsProcessingParameterNumber.Type.Integer, QgsProcessingParameterNumber.Type.Double
        how = {key: self.about[end] for key, end in (("minValue", "least"), ("maxValue", "most"))}
        return QgsProcessingParameterNumber(
            name, label, whole if self.about["whole"] else real, self.about["default"], optional=optional,
            **{key: value for key, value in how.items() if value is not None},
        )  # fmt: skip

    def words(self, given):
        """Return nothing where it is as it would be anyway."""
        if not given.has(self.name):
            return []
        value = given.algorithm.parameterAsDouble(given.parameters, self.name, given.context)
        same = self.about["default"] is not None and value == self.about["default"]
        return [] if same else [self.flag, str(int(value)) if self.about["whole"] else repr(value)]


class ChoiceOption(Option):
    """One of several words."""

    def make(self, name, label, optional):
        """Return a list to choose from."""
        choices = self.about["choices"]
        return QgsProcessingParameterEnum(name, label, choices, False, self.about["default"], optional, True)

    def words(self, given):
        """Return the word, unless it is the usual one."""
        chosen = given.algorithm.parameterAsEnumString(given.parameters, self.name, given.context)
        return self.each([chosen] if chosen and chosen != self.about["default"] else [])


class Flag(Option):
    """Yes or no."""

    def make(self, name, label, optional):
        """Return a box to tick."""
        return QgsProcessingParameterBoolean(name, label, False)

    def words(self, given):
        """Return the flag alone."""
        return [self.flag] if given.algorithm.parameterAsBool(given.parameters, self.name, given.context) else []


class Crs(Option):
    """A coordinate reference system."""

    def make(self, name, label, optional):
        """Return QGIS's own choice of these."""
        return QgsProcessingParameterCrs(name, label, self.about["default"], optional)

    def words(self, given):
        """Return its code, or all of it where it has none."""
        crs = given.algorithm.parameterAsCrs(given.parameters, self.name, given.context)
        return self.each([crs.authid() or crs.toWkt()] if given.has(self.name) and crs.isValid() else [])


class Column(Option):
    """A column of a layer, or several."""

    several = False

    def make(self, name, label, optional):
        """Return a list of the columns of the layer, or a line of text where it is not known."""
        if not self.about["of"]:
            return QgsProcessingParameterString(name, label, optional=optional)
        kind = QgsProcessingParameterField.DataType.Any
        return QgsProcessingParameterField(
            name, label, None, self.about["of"], kind, allowMultiple=self.several, optional=optional
        )

    def words(self, given):
        """Return the flag with each column."""
        if not given.has(self.name):
            return []
        if not self.about["of"]:
            return super().words(given)
        return self.each(given.algorithm.parameterAsFields(given.parameters, self.name, given.context))


class Columns(Column):
    """Several columns."""

    several = True


class LayerOption(Option):
    """Features: all of a layer, or those that are selected."""

    def make(self, name, label, optional):
        """Return a choice of the layers of this shape."""
        kind = _SHAPES.get(self.about["shape"], QgsProcessing.SourceType.TypeVectorAnyGeometry)
        return QgsProcessingParameterFeatureSource(name, label, [kind], optional=optional)

    def words(self, given):
        """Return a file with them."""
        source = given.algorithm.parameterAsSource(given.parameters, self.name, given.context)
        if source is None:
            if given.has(self.name):
                raise QgsProcessingException(given.algorithm.invalidSourceError(given.parameters, self.name))
            return []
        layer = given.algorithm.parameterAsVectorLayer(given.parameters, self.name, given.context)
        return self.each([vector_file(source, layer, given.parameters.get(self.name), given, self.name.lower())])


class Layers(Option):
    """Rasters or polygons, for all periods or one for each."""

    def make(self, name, label, optional):
        """Return a choice of any layers."""
        kind = QgsProcessing.SourceType.TypeMapLayer
        return QgsProcessingParameterMultipleLayers(name, label, kind, optional=optional)

    def words(self, given):
        """Return a file for each."""
        return self.each([path for _, path in self.files(given)])

    def files(self, given):
        """Return the names and files of layers, in their order."""
        layers = given.layers(self.name) if given.has(self.name) else []
        asked = given.parameters.get(self.name)
        if len(layers) < (len(asked) if isinstance(asked, (list, tuple)) else bool(asked)):
            raise QgsProcessingException(f"{self.label}: a layer cannot be opened: {asked}.")
        files = []
        for n, layer in enumerate(layers):
            if hasattr(layer, "getFeatures"):
                path = vector_file(layer, layer, None, given, f"{self.name.lower()}-{n}")
            else:
                path = raster_file(layer)
            files.append((layer.name(), path))
        return files


class Covariates(Layers):
    """Rasters (or places, for distances) by the names of their layers, and how they enter as text."""

    def terms(self):
        """Return the parameter that says how they enter."""
        parameter = QgsProcessingParameterString(
            f"{self.name}_TERMS", "How these enter the map, such as: landuse|levels; rain|smooth", optional=True
        )
        parameter.setHelp(
            "Each by the name of its layer, with semicolons between. NAME|levels: codes; NAME|smooth: a curve; "
            "NAME|group: groups; NAME|distance|smooth: the distance over land; BOTH=NAME,OTHER|interaction: of two. "
            "The others enter with a slope."
        )
        return self.placed(parameter)

    def words(self, given):
        """Return NAME=FILE|KIND for each."""
        text = given.text(f"{self.name}_TERMS") if given.has(f"{self.name}_TERMS") else ""
        pairs = [term.strip() for term in text.split(";") if term.strip()]
        kinds = dict(term.split("|", 1) for term in pairs if "=" not in term and "|" in term)
        words, names = [], set()
        for name, path in self.files(given):
            names.add(name)
            kind = kinds.get(name)
            words.append(f"{name.replace('=', ' ')}={path}" + (f"|{kind}" if kind else ""))
        for term in pairs:
            if "=" in term:
                words.append(term)
            elif term.split("|")[0] not in names:
                raise QgsProcessingException(
                    f"{term}: no layer of this name is among them; there are {', '.join(sorted(names)) or 'none'}."
                )
        return self.each(words)


class Folder(Option):
    """The folder of results."""

    def make(self, name, label, optional):
        """Return a choice of folders."""
        return QgsProcessingParameterFolderDestination(name, label)

    def words(self, given):
        """Return where it is."""
        return [self.flag, given.text(self.name)]


_KINDS = {
    "file": LayerOption, "files": Layers, "rasters": Covariates, "places": PlacesOption, "keys": Terms,
    "column": Column, "column or values": Column, "columns": Columns, "number": Number, "numbers": NumbersOption,
    "choice": ChoiceOption, "flag": Flag, "crs": Crs, "folder": Folder,
}  # fmt: skip


def option(about):
    """Return an option of the shell; a kind that is not known here is a line of text."""
    return _KINDS.get(about["kind"], Option)(about)


def split_words(text):
    """Return the words of a command line as its own system would."""
    words = shlex.split(text or "", posix=os.name != "nt")
    return [w[1:-1] if os.name == "nt" and len(w) > 1 and w[0] == w[-1] == '"' else w for w in words]
